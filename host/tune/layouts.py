"""Measures on a board what kernels on either layout of images cost, and fits the table of rates.

One model of many independent operators is deployed beside what runs there; the time stamps of its
operators are the measurements. On a counting board they count instructions.
"""

from __future__ import annotations

import hashlib
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.host.api import Device
from edgekit.host.bundle import build_bundle, sign_bundle
from edgekit.host.compiler import Made, build_graph
from edgekit.host.files import write_whole
from edgekit.host.graph import ops
from edgekit.host.graph.ops.planar import TO_PLANES
from edgekit.host.graph.types import DType, Graph, Node, Operator, Padding, Tensor
from edgekit.host.lower.isa import ISAS
from edgekit.host.lower.regions import Work, work_of
from edgekit.kb.board import load_board
from edgekit.kb.layout_table import KERNELS, LayoutTable, Rate

# Image sides, channels in and out: as in detectors and classifiers of a few megabytes.
_POINTWISE = ((96, 32, 8), (48, 16, 64), (48, 64, 16), (24, 128, 32), (12, 48, 192), (6, 384, 96))
_DENSITIES = (0.1, 0.3, 0.6)
_WINDOWS = ((96, 8), (48, 32), (24, 64), (12, 96), (6, 192))
_PAD = Padding(1, 1, 1, 1)


@dataclass(frozen=True)
class _Case:
    """One operator with what it is measured for."""

    kernel: str
    node: Node
    work: Work


def tune_layouts(device: Device, path: Path, seconds: int = 2) -> LayoutTable:
    """Measures on `device`, and writes the table to `path`."""
    profile = load_board(device.profile)
    graph, cases = _operators(ISAS[profile.simd].vl)
    artifact = build_graph(graph, Made(graph), _digest(graph), profile)
    with device.aside() as aside:
        aside.deploy(sign_bundle(build_bundle(artifact, profile)))
        times = {o.name: o.median_us for o in aside.bench(seconds=seconds).operators}
    measured = [(case.kernel, case.work, 1e3 * times[case.node.name]) for case in cases]
    rates, errors = {}, []
    for kernel in KERNELS:
        rows = [(work, cost) for name, work, cost in measured if name == kernel]
        rates[kernel] = _fitted(rows)
        errors += [abs(rates[kernel].cost(w.products, w.values, w.pieces) / c - 1) for w, c in rows]
    unit = "instructions" if device.emulated else "nanoseconds"
    error = statistics.median(errors)
    table = LayoutTable(profile.platform, unit, len(measured), error, rates)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, table.text().encode())
    return table


def _digest(graph: Graph) -> str:
    shapes = [(n.name, [graph.tensors[t].shape for t in n.inputs if t]) for n in graph.nodes]
    return hashlib.sha256(f"layouts {shapes}".encode()).hexdigest()


def _fitted(rows: Sequence[tuple[Work, float]]) -> Rate:
    """Rates of at least 0 with the least relative errors, of all ways to leave some out."""
    found, least = Rate(0, 0, 0), float("inf")
    for size in (1, 2, 3):
        for kept in itertools.combinations(range(3), size):
            a = np.array([[(w.products, w.values, w.pieces)[i] / c for i in kept] for w, c in rows])
            solved = np.linalg.lstsq(a, np.ones(len(rows)), rcond=None)[0]
            error = float(np.square(a @ solved - 1).sum())
            if (solved >= 0).all() and error < least:
                values = np.zeros(3)
                values[list(kept)] = solved
                found, least = Rate(*(float(v) for v in values)), error
    return found


class _Builder:
    """A graph of operators side by side."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._nodes: list[Node] = []
        self._inputs: list[str] = []
        self._rng = np.random.default_rng(0)

    def constant(self, *shape: int, density: float = 1.0) -> Tensor:
        data = self._rng.standard_normal(shape).astype(np.float32)
        data[self._rng.random(shape) >= density] = 0
        return self._add(Tensor(f"t{len(self._tensors)}", shape, DType.F32, None, data))

    def image(self, *shape: int) -> Tensor:
        t = self._add(Tensor(f"t{len(self._tensors)}", shape, DType.F32))
        self._inputs.append(t.name)
        return t

    def node(self, op: Operator, *ins: Tensor) -> Node:
        ((shape, dtype),) = op.infer(ins)
        out = self._add(Tensor(f"t{len(self._tensors)}", shape, dtype))
        name = f"{op.kind}_{len(self._nodes)}"
        self._nodes.append(Node(name, op, tuple(t.name for t in ins), (out.name,)))
        return self._nodes[-1]

    def graph(self) -> Graph:
        outputs = tuple(n.outputs[0] for n in self._nodes)
        return Graph("layouts", self._tensors, tuple(self._nodes), tuple(self._inputs), outputs)

    def _add(self, t: Tensor) -> Tensor:
        self._tensors[t.name] = t
        return t


def _operators(vl: int) -> tuple[Graph, list[_Case]]:
    made, named = _Builder(), []
    for side, ic, oc in _POINTWISE:
        pixels, planes = made.image(1, side, side, ic), made.image(1, ic, side, side)
        w = made.constant(oc, 1, 1, ic)
        named.append(("dense", made.node(ops.Conv2D(), pixels, w)))
        named.append(("transpose", made.node(ops.Transpose(TO_PLANES), pixels)))
        for density in _DENSITIES:
            w = made.constant(oc, 1, 1, ic, density=density)
            named.append(("sparse", made.node(ops.PlanarConv2D(), planes, w)))
    for (side, c), stride in itertools.product(_WINDOWS, ((1, 1), (2, 2))):
        pixels, planes = made.image(1, side, side, c), made.image(1, c, side, side)
        w = made.constant(1, 3, 3, c)
        named.append(("depthwise", made.node(ops.DepthwiseConv2D(stride, padding=_PAD), pixels, w)))
        planar = ops.PlanarDepthwiseConv2D(stride, padding=_PAD)
        named.append(("planar_depthwise", made.node(planar, planes, w)))
    graph = made.graph()
    return graph, [_Case(k, n, work_of(graph, n, vl)) for k, n in named]
