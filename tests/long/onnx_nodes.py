"""Runs the node tests of the onnx package through passes, kernels and this machine's CPU.

    python tests/long/onnx_nodes.py [--only SUBSTRING] [--plain]

Only tests whose operators and element types edgekit claims. Many models share one library: their
graphs stand side by side in it. `--plain` builds for plain C instead of this CPU. Prints each
test that fails and why, and the pass rate last; exit code 1 if it is below 95 %.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import numpy as np
from kernel_runs import build, run_here, x86_boards
from onnx_nodes import NodeCase, claimed_cases, disagreement, graph_of

from edgekit.host.errors import EdgekitError
from edgekit.host.graph.types import Array, Graph, Node
from edgekit.host.lower.lower import lower
from edgekit.host.passes.pipeline import run_passes
from edgekit.kb.board import BoardProfile, load_board

_BAR = 0.95
_TOGETHER = 150  # graphs in one library


@dataclass(frozen=True, eq=False)
class _Ready:
    case: NodeCase
    graph: Graph
    inputs: dict[str, Array]
    prefix: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="tests whose name holds this")
    parser.add_argument("--plain", action="store_true", help="build for plain C")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    board = x86_boards()[0] if asked.plain else load_board("local")
    cases = [c for c in claimed_cases() if asked.only in c.name]
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        ready = _prepare(cases, board, Path(folder), failures)
        for start in range(0, len(ready), _TOGETHER):
            part = ready[start : start + _TOGETHER]
            outputs = _run(part, board, Path(folder) / f"library{start}")
            for one in part:
                own = {n: outputs[one.prefix + n] for n in one.graph.outputs}
                if found := disagreement(one.case, own):
                    failures[one.case.name] = found
    for name, why in sorted(failures.items()):
        print(f"{name}: {why}", file=sys.stderr)
    passed = len(cases) - len(failures)
    rate = passed / max(len(cases), 1)
    print(f"{passed} of {len(cases)} ONNX node tests pass on {board.simd} ({rate:.1%})")
    return 0 if rate >= _BAR else 1


def _prepare(
    cases: Sequence[NodeCase], board: BoardProfile, folder: Path, failures: dict[str, str]
) -> list[_Ready]:
    """Imports all cases and lowers each by itself, so that one refusal stops only itself."""
    ready = []
    for i, case in enumerate(cases):
        try:
            imported, inputs = graph_of(case, folder)
            graph, _ = run_passes(imported)
            lower(graph, board)
            ready.append(_Ready(case, graph, inputs, f"m{i}_"))
        except EdgekitError as error:
            failures[case.name] = str(error)
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
