"""Runs the node tests of the onnx package through passes, kernels and this machine's CPU.

    python -m tests.long.onnx_nodes [--only SUBSTRING] [--plain] [--references]

Covers all tests of standard ONNX operators with fixed shapes and numeric tensors. Many models share
one library that contains their graphs in parallel. `--plain` builds for plain C instead of this
CPU; `--references` runs the NumPy references instead, without passes. Prints each test that is
rejected or gives wrong values, and finally the pass rates; exit code 1 if a claimed operator is
wrong, or too many are rejected.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, Graph, Node
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import EdgekitError
from edgekit.kb.targets.board import BoardProfile, load_board
from tests.support.kernel_runs import build, run_here, x86_boards
from tests.support.onnx_nodes import NodeCase, all_cases, disagreement, graph_of, is_claimed

_CLAIMED_BAR, _BAR = 0.97, 0.85  # required rates: claimed operators, all operators
_TOGETHER = 150  # graphs per library


@dataclass(frozen=True, eq=False)
class _Ready:
    case: NodeCase
    graph: Graph
    inputs: dict[str, Array]
    prefix: str


@dataclass
class _Findings:
    """Why tests did not pass, by name."""

    refused: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="tests whose name holds this")
    parser.add_argument("--plain", action="store_true", help="build for plain C")
    parser.add_argument("--references", action="store_true", help="by the NumPy references")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    board = x86_boards()[0] if options.plain else load_board("local")
    cases = [c for c in all_cases() if options.only in c.name]
    found = _Findings()
    with tempfile.TemporaryDirectory() as folder:
        if options.references:
            _evaluate(cases, Path(folder), found)
        else:
            _compile(cases, board, Path(folder), found)
    for kind, reasons in (("refused", found.refused), ("wrong", found.wrong)):
        for name, why in sorted(reasons.items()):
            print(f"{kind} {name}: {why}", file=sys.stderr)
    claimed = _rate("of claimed operators", [c for c in cases if is_claimed(c)], found)
    every = _rate("of all operators", cases, found)
    return 0 if claimed >= _CLAIMED_BAR and every >= _BAR and not found.wrong else 1


def _rate(what: str, cases: Sequence[NodeCase], found: _Findings) -> float:
    names = {c.name for c in cases}
    refused, wrong = len(names & found.refused.keys()), len(names & found.wrong.keys())
    passed = len(names) - refused - wrong
    rate = passed / max(len(names), 1)
    print(
        f"{len(names)} tests {what}: {passed} pass ({rate:.1%}), {refused} refused, {wrong} wrong"
    )
    return rate


def _evaluate(cases: Sequence[NodeCase], folder: Path, found: _Findings) -> None:
    for case in cases:
        try:
            graph, inputs = graph_of(case, folder)
        except EdgekitError as error:
            found.refused[case.name] = str(error)
            continue
        if why := disagreement(case, evaluate(graph, inputs).outputs):
            found.wrong[case.name] = why


def _compile(
    cases: Sequence[NodeCase], board: BoardProfile, folder: Path, found: _Findings
) -> None:
    ready = _prepare(cases, board, folder, found.refused)
    for start in range(0, len(ready), _TOGETHER):
        part = ready[start : start + _TOGETHER]
        outputs = _run(part, board, folder / f"library{start}")
        for one in part:
            own = {n: outputs[one.prefix + n] for n in one.graph.outputs}
            if why := disagreement(one.case, own):
                found.wrong[one.case.name] = why


def _prepare(
    cases: Sequence[NodeCase], board: BoardProfile, folder: Path, refused: dict[str, str]
) -> list[_Ready]:
    """Import all cases and lower each separately, so that one rejection affects no other."""
    ready = []
    for i, case in enumerate(cases):
        try:
            imported, inputs = graph_of(case, folder)
            graph, _ = run_passes(imported)
            lower(graph, board)
            ready.append(_Ready(case, graph, inputs, f"m{i}_"))
        except EdgekitError as error:
            refused[case.name] = str(error)
    return ready


def _run(part: Sequence[_Ready], board: BoardProfile, folder: Path) -> dict[str, Array]:
    graph = _side_by_side(part)
    inputs = {one.prefix + n: v for one in part for n, v in one.inputs.items()}
    return run_here(
        build(graph, board, folder), {n: np.array(v, order="C") for n, v in inputs.items()}
    )


def _side_by_side(part: Sequence[_Ready]) -> Graph:
    tensors, nodes = {}, []
    inputs: list[str] = []
    outputs: list[str] = []
    for one in part:
        p, g = one.prefix, one.graph
        tensors |= {p + n: replace(t, name=p + n) for n, t in g.tensors.items()}
        for n in g.nodes:
            ins = tuple(None if i is None else p + i for i in n.inputs)
            nodes.append(Node(p + n.name, n.op, ins, tuple(p + o for o in n.outputs)))
        inputs += [p + n for n in g.inputs]
        outputs += [p + n for n in g.outputs]
    return Graph("nodes", tensors, tuple(nodes), tuple(inputs), tuple(outputs))


if __name__ == "__main__":
    sys.exit(main())
