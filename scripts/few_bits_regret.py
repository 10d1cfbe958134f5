#!/usr/bin/env python3
"""Estimates what rows by weights of few bits lose to the best kernel.

    scripts/few_bits_regret.py [--boards rpi3,rk3566,...] [--bits 2,3,4] [--threads 1,4] [--write]

The products are those of the layers of SmolLM2-135M, Qwen3-0.6B and TinyLlama, in one model, so
that weights come from memory. Forms: weights unpacked or, with 2 bits, looked up where the core has
the kernel; and lines fetched ahead: as chosen, half and twice as many. Regret is the time of
the chosen form over that of the best one, minus 1, of each product, in simulated time. What was
estimated is kept in the user's cache, and the same command resumes. --write records the means in
docs/results/few_bits_regret.csv.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from results import record

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.driver import build_graph, plan_graph, units_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.lowering.gemm.row_tables import can_look_up, with_tables
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.pipeline import PreparedGraph
from edgekit.host.compiler.toolchain.zig import Toolchain, TranslationUnit
from edgekit.host.deploy.bundle import build_bundle, sign_bundle
from edgekit.host.simulator.estimate_cache import recall, remember
from edgekit.host.simulator.model import estimate_model
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import BoardProfile, load_board
from edgekit.kb.targets.isa import ByteProduct

_BOARDS = "rpi3,rk3566,rpi4,rpi5,bpi-f3"
# Inputs and outputs of layers.
_SHAPES = {
    "SmolLM2-135M": ((576, 192), (576, 576), (576, 1536), (1536, 576)),
    "Qwen3-0.6B": ((1024, 2048), (1024, 1024), (2048, 1024), (1024, 3072), (3072, 1024)),
    "TinyLlama": ((2048, 256), (2048, 2048), (2048, 5632), (5632, 2048)),
}
_GROUPS = {2: (64,), 3: (64,), 4: (128, 64)}
_OP = ops.OutlierFullyConnected(1e30)  # no outliers
# Bytes if the macro is not given: of kernels that prefetch, and that load lines ahead.
_USUAL = {"I8_PREFETCH_DISTANCE": 1024, "AHEAD": 1280}


@dataclass(frozen=True)
class _Form:
    """Whether products look up, or as chosen (None), and how far ahead they fetch, as a multiple of
    what is chosen."""

    tables: bool | None
    ahead: float


def main() -> None:
    """Parse the command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--boards", default=_BOARDS)
    parser.add_argument("--bits", default="2,3,4")
    parser.add_argument("--threads", default="1,4")
    parser.add_argument("--write", action="store_true", help="record the means")
    asked = parser.parse_args()
    bits, threads = (map(int, each.split(",")) for each in (asked.bits, asked.threads))
    for name, each, count in itertools.product(asked.boards.split(","), bits, threads):
        board = load_board(name)
        times = {form: _times(board, each, count, form) for form in _forms(board, each)}
        rows = list(_rows(board, each, count, times))
        if asked.write:
            command = f"scripts/few_bits_regret.py --boards {name} --bits {each} --threads {count}"
            key = ("weights", "board", "threads", "model")
            record("few_bits_regret.csv", rows, key, ("estimated", f"{command} --write"))


def _forms(board: BoardProfile, bits: int) -> Iterator[_Form]:
    yield _Form(None, 1)
    for tables in (False, True) if bits == 2 and can_look_up(board) else (False,):
        for ahead in (1, 0.5, 2):
            yield _Form(tables, ahead)


def _rows(
    board: BoardProfile, bits: int, threads: int, times: Mapping[_Form, Mapping[str, float]]
) -> Iterator[dict[str, object]]:
    chosen = times[_Form(None, 1)]
    for model, shapes in _SHAPES.items():
        regrets = []
        for shape in shapes:
            name = _name(*shape)
            form = _best(times, name)
            regrets.append(chosen[name] / times[form][name] - 1)
            kind = {None: "chosen", False: "unpack", True: "look-up"}[form.tables]
            print(
                board.name, f"int{bits}", threads, model, name, f"{regrets[-1]:.3f}",
                kind, f"{form.ahead:g}",
            )  # fmt: skip
        yield {
            "weights": f"int{bits}",
            "board": board.name,
            "threads": threads,
            "model": model,
            "products": len(shapes),
            "mean_regret": f"{statistics.mean(regrets):.3f}",
            "worst_regret": f"{max(regrets):.3f}",
            "lost_time": f"{_lost(chosen, times, shapes):.3f}",
        }


def _best(times: Mapping[_Form, Mapping[str, float]], name: str) -> _Form:
    return min(times, key=lambda form: times[form][name])


def _lost(
    chosen: Mapping[str, float],
    times: Mapping[_Form, Mapping[str, float]],
    shapes: Sequence[tuple[int, int]],
) -> float:
    """Of all products together."""
    names = [_name(*shape) for shape in shapes]
    best = sum(min(each[name] for each in times.values()) for name in names)
    return sum(chosen[name] for name in names) / best - 1


def _times(board: BoardProfile, bits: int, threads: int, form: _Form) -> dict[str, float]:
    """Cycles of each product."""
    graph = _graph(bits)
    if form.tables is None:
        graph = with_tables(graph, board)
    elif form.tables:
        nodes = tuple(replace(node, op=replace(_OP, tables=True)) for node in graph.nodes)
        graph = replace(graph, nodes=nodes)
    options = CompileOptions(order="import", threads=threads)
    digest = hashlib.sha256(repr((form, bits, [n.op for n in graph.nodes])).encode()).hexdigest()
    made = PreparedGraph(graph, graph)
    artifact = build_graph(made, digest, board, options=options)
    if form.ahead != 1:
        _, plan = plan_graph(made, board, options)
        units = [_fetching(unit, board, form.ahead) for unit in units_of(plan, board)]
        library = Toolchain(board, cache_folder() / "objects").build(units)
        artifact = replace(artifact, library=library)
    bundle = sign_bundle(build_bundle(artifact, board))
    found = recall(bundle.manifest.id, board, threads)
    if found is None:
        found = estimate_model(bundle.manifest, bundle.files, target_of(board), threads)
        remember(bundle.manifest.id, board, threads, found)
    return {each.spec.name: float(each.cost.cycles) for each in found.operators}


def _fetching(unit: TranslationUnit, board: BoardProfile, ahead: float) -> TranslationUnit:
    """A unit of a row's product that fetches farther ahead, or less far."""
    if not isinstance(unit.source, Path) or unit.source.name != "grouped_row.c":
        return unit
    loads = board.arch == "riscv64" or (board.in_order and board.isa.i8 is ByteProduct.DOT4_SS)
    macros, name = dict(unit.macros), "AHEAD" if loads else "I8_PREFETCH_DISTANCE"
    distance = int(macros.get(name, _USUAL[name])) * ahead
    macros[name] = str(int(distance) // 64 * 64)
    return replace(unit, macros=tuple(macros.items()))


def _graph(bits: int) -> Graph:
    rng, tensors, nodes = np.random.default_rng(0), dict[str, Tensor](), list[Node]()
    for k, n in itertools.chain(*_SHAPES.values()):
        name, group = _name(k, n), next(g for g in _GROUPS[bits] if k % g == 0)
        values = rng.integers(-(1 << bits - 1), 1 << bits - 1, (n, k)).astype(np.int8)
        scales = np.full((k // group, n), 0.0625, np.float32)
        for each in (
            Tensor(f"x{k}", (1, k), DType.F32),
            Tensor(f"{name}.w", values.shape, DType.I8, None, values),
            Tensor(f"{name}.s", scales.shape, DType.F32, None, scales),
            Tensor(f"{name}.y", (1, n), DType.F32),
        ):
            tensors[each.name] = each
        nodes.append(Node(name, _OP, (f"x{k}", f"{name}.w", f"{name}.s"), (f"{name}.y",)))
    inputs = tuple(name for name in tensors if name.startswith("x"))
    return Graph("few_bits", tensors, tuple(nodes), inputs, tuple(n.outputs[0] for n in nodes))


def _name(k: int, n: int) -> str:
    return f"{k}x{n}"


if __name__ == "__main__":
    main()
