"""Measures kernel costs in either image layout on a board, and fits the table of rates.

A single model with many operators is deployed next to the active release; its operators' time
stamps are the measurements. Counting boards count instructions; without a board, cycles are
estimated. Another operator produces each input, and outputs are not kept, so that, as in a real
model, both are in the cache if they fit.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.common.files import atomic_write
from edgekit.host.compiler.costs.layout_table import CHAIN, KernelWork, LayoutCase, LayoutTable
from edgekit.host.compiler.costs.layouts import chain_work
from edgekit.host.compiler.driver import build_graph
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.chains import members_of
from edgekit.host.compiler.ir.ops.channels_first import TO_NCHW, TO_NHWC
from edgekit.host.compiler.ir.types import (
    Activation,
    Array,
    DType,
    Graph,
    Node,
    Operator,
    Padding,
    Quant,
    Tensor,
)
from edgekit.host.compiler.lowering.channels_first.forms import work_of
from edgekit.host.compiler.lowering.sparse.pruned import pruned_form, quantized_work, row_work
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.pipeline import PreparedGraph
from edgekit.host.compiler.tables.spmv import spmv_table_of
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.bundle import Bundle, build_bundle, sign_bundle
from edgekit.host.deploy.release import refuse_noise, why_noisy
from edgekit.host.simulator.model import estimate_model
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import BoardProfile, load_board

# Image sides, input and output channels, as in detectors and classifiers of a few megabytes.
_POINTWISE = (
    (96, 32, 8), (96, 8, 32), (48, 16, 64), (48, 64, 16), (48, 48, 48), (24, 128, 32), (24, 32, 64),
    (12, 48, 192), (12, 96, 48), (6, 384, 96), (6, 96, 384),
)  # fmt: skip
_DENSITIES = (0.1, 0.3, 0.6)
# Image sides, channels, window sizes. Some have row strides that are multiples of a page, so that
# rows map to the same cache sets; others do not.
_WINDOWS = (
    (96, 8, 3), (96, 32, 3), (48, 16, 3), (48, 64, 3), (24, 32, 3), (24, 128, 3), (12, 48, 3),
    (12, 64, 3), (12, 192, 3), (6, 192, 3), (48, 32, 5), (24, 128, 5), (12, 64, 5), (7, 192, 5),
    (48, 48, 3), (28, 120, 5), (14, 240, 5), (7, 480, 5), (28, 120, 3), (14, 240, 3),
)  # fmt: skip
# Image sides, input and output channels, strides of pruned 3x3 windows.
_PRUNED_WINDOWS = (
    (64, 8, 16, 2), (32, 16, 16, 1), (40, 64, 32, 1), (16, 32, 64, 2), (8, 64, 64, 1),
    (20, 128, 64, 1),
)  # fmt: skip
_WINDOW_DENSITIES = (0.1, 0.3)
# Chains of a 3x3 window and a pointwise layer: image sides, channels, strides, output channels.
_CHAINS = (
    (96, 32, 1, 8), (96, 32, 2, 12), (48, 48, 1, 24), (24, 128, 1, 32),
)  # fmt: skip
# Outputs and inputs of fully connected layers: from small classifiers to layers larger than L2.
_LAYERS = ((10, 256), (64, 256), (256, 256), (256, 1024), (1024, 256), (1024, 1024), (4096, 1024))
_SEVERAL_ROWS = (
    *itertools.product((4, 16, 64), ((256, 256), (1024, 1024))),
    *itertools.product((4, 16), ((1024, 4096), (4096, 1024))),
)
_LAYER_DENSITIES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
# 8-bit quantized layers: points, outputs and inputs, and the densities of weights.
_I8_SHAPES = ((1, 128, 128), (1, 1000, 256), (1, 1024, 1024), (64, 256, 256), (196, 128, 64))
_I8_DENSITIES = (0.1, 0.3)
_SCALE = Quant(np.full(1, 0.05, np.float32), np.zeros(1, np.int64), 0)


@dataclass(frozen=True)
class _Operator:
    """One operator, the kernel it is measured for, and its work."""

    kernel: str
    node: Node
    work: KernelWork


def tune_layouts(
    device: Board, path: Path, seconds: int = 2, allow_noise: bool = True
) -> LayoutTable:
    """Measures on `device`, and writes the table to `path`, a noisy one only with `allow_noise`."""
    profile = load_board(device.profile)
    bundle, cases = _build_bundle(profile)
    with device.temporary() as temporary:
        temporary.deploy(bundle)
        timing = temporary.bench(threads=temporary.threads or 1, seconds=seconds)
    if not (allow_noise or device.emulated) and (why := why_noisy(timing)):
        refuse_noise(device.name, why)
    unit = "instructions" if device.emulated else "nanoseconds"
    costs = {o.name: 1e3 * o.median_us for o in timing.operators}
    return _write_table(LayoutTable(profile.platform, unit, _to_cases(cases, costs)), path)


def estimate_layouts(profile: BoardProfile, path: Path) -> LayoutTable:
    """Estimates cycles on the profile's core, and writes the table to `path`. Raises InputError
    if there is no model of the core."""
    target = target_of(profile)
    bundle, cases = _build_bundle(profile)
    found = estimate_model(bundle.manifest, bundle.files, target)
    costs = {o.spec.name: float(o.cost.cycles) for o in found.operators}
    return _write_table(LayoutTable(profile.platform, "cycles", _to_cases(cases, costs)), path)


def left_out_error(table: LayoutTable) -> float:
    """Median of |estimated / measured - 1|, estimating each case from the kernel's other cases."""
    errors = []
    for kernel in {case.kernel for case in table.cases}:
        cases = tuple(case for case in table.cases if case.kernel == kernel)
        for i, case in enumerate(cases):
            others = replace(table, cases=cases[:i] + cases[i + 1 :])
            errors.append(abs(others.cost(kernel, case.work) / case.cost - 1))
    return float(np.median(errors))


def _build_bundle(profile: BoardProfile) -> tuple[Bundle, list[_Operator]]:
    graph, cases = _build_operators(profile)
    options = CompileOptions(order="import")
    artifact = build_graph(
        PreparedGraph(graph, graph), _graph_digest(graph), profile, options=options
    )
    return sign_bundle(build_bundle(artifact, profile)), cases


def _to_cases(cases: Sequence[_Operator], costs: Mapping[str, float]) -> tuple[LayoutCase, ...]:
    return tuple(LayoutCase(c.kernel, c.work, costs[c.node.name]) for c in cases)


def _write_table(table: LayoutTable, path: Path) -> LayoutTable:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, table.text().encode())
    return table


def _graph_digest(graph: Graph) -> str:
    shapes = [(n.name, [graph.tensors[t].shape for t in n.inputs if t]) for n in graph.nodes]
    return hashlib.sha256(f"layouts {shapes}".encode()).hexdigest()


class _Builder:
    """Builds a graph of independent operators."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._nodes: list[Node] = []

    def constant(self, *shape: int, density: float = 1.0) -> Tensor:
        data = _random_weights(shape, density)
        return self._add_tensor(Tensor(f"t{len(self._tensors)}", shape, DType.F32, None, data))

    def quantized(self, *shape: int, density: float) -> Tensor:
        """Random int8 weights."""
        floats = _random_weights(shape, density)
        data = np.clip(np.rint(40 * floats), -127, 127).astype(np.int8)
        return self._add_tensor(Tensor(f"t{len(self._tensors)}", shape, DType.I8, _SCALE, data))

    def image(self, *shape: int, dtype: DType = DType.F32) -> Tensor:
        """Adds a fresh tensor computed from the graph input of that shape."""
        quant = _SCALE if dtype is DType.I8 else None
        x = Tensor(f"x{dtype.value}_{'_'.join(map(str, shape))}", shape, dtype, quant)
        self._tensors[x.name] = x
        return self._tensors[self.node(ops.Clamp(Activation.RELU), x).outputs[0]]

    def node(self, op: Operator, *ins: Tensor | None) -> Node:
        ((shape, dtype),) = op.infer(ins)
        quant = _SCALE if dtype is DType.I8 else None
        out = self._add_tensor(Tensor(f"t{len(self._tensors)}", shape, dtype, quant))
        name = f"{op.kind}_{len(self._nodes)}"
        self._nodes.append(
            Node(name, op, tuple(None if t is None else t.name for t in ins), (out.name,))
        )
        return self._nodes[-1]

    def graph(self) -> Graph:
        made = {t for n in self._nodes for t in n.outputs}
        inputs = tuple(t.name for t in self._tensors.values() if t.data is None)
        inputs = tuple(name for name in inputs if name not in made)
        output = self._nodes[-1].outputs
        return Graph("layouts", self._tensors, tuple(self._nodes), inputs, output)

    def _add_tensor(self, t: Tensor) -> Tensor:
        self._tensors[t.name] = t
        return t


def _random_weights(shape: tuple[int, ...], density: float) -> Array:
    rng = np.random.default_rng((*shape, round(100 * density)))  # independent of list order
    data = rng.standard_normal(shape).astype(np.float32)
    data[rng.random(shape) >= density] = 0
    return data


def _build_operators(profile: BoardProfile) -> tuple[Graph, list[_Operator]]:
    made, named, vl = _Builder(), [], profile.isa.vl

    def measure(kernel: str, op: Operator, image: Tensor, *weights: Tensor | None) -> None:
        named.append((kernel, made.node(op, image, *weights)))

    for side, ic, oc in _POINTWISE:
        nhwc, nchw = (1, side, side, ic), (1, ic, side, side)
        measure("dense", ops.Conv2D(), made.image(*nhwc), made.constant(oc, 1, 1, ic))
        measure("transpose", ops.Transpose(TO_NCHW), made.image(*nhwc))
        measure("transpose", ops.Transpose(TO_NHWC), made.image(*nchw))
        for density in _DENSITIES:
            w = made.constant(oc, 1, 1, ic, density=density)
            measure("sparse", ops.ChannelsFirstConv2D(), made.image(*nchw), w)
    for (side, c, window), stride in itertools.product(_WINDOWS, ((1, 1), (2, 2))):
        nhwc, nchw = (1, side, side, c), (1, c, side, side)
        w, pad = made.constant(1, window, window, c), Padding(*(window // 2,) * 4)
        measure("depthwise", ops.DepthwiseConv2D(stride, padding=pad), made.image(*nhwc), w)
        on_nchw = ops.ChannelsFirstDepthwiseConv2D(stride, padding=pad)
        measure("depthwise_chw", on_nchw, made.image(*nchw), w)
    for side, c, step, oc in _CHAINS:
        depthwise = ops.DepthwiseConv2D((step, step), padding=Padding(1, 1, 1, 1))
        chain = ops.RowChain((depthwise, ops.Conv2D()), names=(CHAIN, CHAIN))
        first, last = made.constant(1, 3, 3, c), made.constant(oc, 1, 1, c)
        none = (None, None, None)
        measure(CHAIN, chain, made.image(1, side, side, c), first, *none, last, *none)
    for side, ic, oc, step in _PRUNED_WINDOWS:
        nhwc, nchw = (1, side, side, ic), (1, ic, side, side)
        moves: tuple[Any, ...] = ((step, step), (1, 1), Padding(1, 1, 1, 1))
        w = made.constant(oc, 3, 3, ic)
        measure("dense_window", ops.Conv2D(*moves), made.image(*nhwc), w)
        for density in _WINDOW_DENSITIES:
            w = made.constant(oc, 3, 3, ic, density=density)
            measure("sparse_window", ops.ChannelsFirstConv2D(*moves), made.image(*nchw), w)
    for rows, (n, k) in _SEVERAL_ROWS:
        measure("dense_rows", ops.Conv2D(), made.image(1, 1, rows, k), made.constant(n, 1, 1, k))
        for density in _DENSITIES:
            w = made.constant(n, 1, 1, k, density=density)
            measure("sparse_rows", ops.ChannelsFirstConv2D(), made.image(1, k, 1, rows), w)
    strips = spmv_table_of(profile)
    for (n, k), density in itertools.product(_LAYERS, (1.0, *_LAYER_DENSITIES)):
        w, op = made.constant(n, k, density=density), ops.FullyConnected()
        if density == 1.0:
            measure("dense_row", op, made.image(1, k), w)
        else:
            assert w.data is not None
            form = pruned_form(op, w.data, profile, strips)
            measure("sparse_row", form, made.image(1, k), w)
    for points, n, k in _I8_SHAPES:
        x = made.image(points, k, dtype=DType.I8)
        measure("dense_i8", ops.FullyConnected(), x, made.quantized(n, k, density=1.0))
        for density in _I8_DENSITIES:
            x = made.image(points, k, dtype=DType.I8)
            measure(
                "sparse_i8", ops.PrunedFullyConnected(), x, made.quantized(n, k, density=density)
            )
    graph = made.graph()
    return graph, [_Operator(k, n, _work_of(graph, n, vl)) for k, n in named]


def _work_of(graph: Graph, node: Node, vl: int) -> KernelWork:
    if isinstance(node.op, ops.RowChain):
        return chain_work(*members_of(graph, node), vl)
    if isinstance(node.op, ops.FullyConnected):
        weights = graph.tensors[node.inputs[1] or ""].data
        assert weights is not None
        sparse = isinstance(node.op, ops.PrunedFullyConnected)
        if weights.dtype == np.int8:
            points = graph.tensors[node.inputs[0] or ""].elements // weights.shape[1]
            return quantized_work(weights, points, sparse, vl)
        return row_work(weights, sparse, vl)
    return work_of(graph, node, vl)
