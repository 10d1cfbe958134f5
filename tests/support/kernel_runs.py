"""Builds a graph for a board and compares its library's output with the reference."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.agent.model import LoadedModel
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.host.compiler.codegen.emit import describe
from edgekit.host.compiler.driver import units_of
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, Graph, Node
from edgekit.host.compiler.lowering.context import WeightsFile
from edgekit.host.compiler.lowering.lower import NO_UNITS, lower
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.kb.targets.board import BoardProfile, cpu_flags, load_board, load_profile
from tests.support.toolchains import toolchain_for


@functools.cache
def x86_boards() -> tuple[BoardProfile, ...]:
    """Every x86 instruction set that this machine supports, including plain C."""
    found = []
    for name in ("x86-64", "x86-64-v3", "x86-64-v4"):
        board = load_profile(name)
        if board.arch == load_board("local").arch and set(board.features) <= cpu_flags():
            found.append(board)
    plain = [dataclasses.replace(b, name="plain-c", simd="scalar") for b in found[:1]]
    return (*plain, *found)


def amx_boards() -> list[BoardProfile]:
    """The AMX board, if this machine supports it. Only the GEMM kernels use AMX."""
    board = load_profile("x86-64-v4-amx")
    usable = board.arch == load_board("local").arch and set(board.features) <= cpu_flags()
    return [board] if usable else []


def product_params() -> list[Any]:
    """x86_params() plus amx_boards(), which are exhaustive."""
    exhaustive = pytest.mark.exhaustive
    return x86_params() + [
        pytest.param(board, id=board.simd, marks=exhaustive) for board in amx_boards()
    ]


def x86_params() -> list[Any]:
    """x86_boards() as test parameters.

    By default only the widest one runs, because it covers what the others lack; the sanitizers run
    plain C. The others are marked exhaustive.
    """
    boards = x86_boards()
    return [
        pytest.param(
            board,
            id=board.simd,
            marks=() if board is boards[-1] else pytest.mark.exhaustive,
        )
        for board in boards
    ]


def build(
    graph: Graph,
    board: BoardProfile,
    folder: Path,
    subgraphs: Sequence[Sequence[str]] = (),
    units: Mapping[str, str] = NO_UNITS,
    table: KnowledgeBase | None = None,
    threads: int = 1,
    weights: WeightsFile | None = None,
) -> Path:
    """Write model.so and weights.bin into `folder`; return it."""
    plan = lower(graph, board, table, subgraphs, units, weights=weights, threads=threads)
    library = toolchain_for(board).build(units_of(plan, board))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.so").write_bytes(library)
    (folder / "weights.bin").write_bytes(plan.lowered.weights)
    (folder / "about.json").write_text(json.dumps(describe(plan)))
    return folder


def run_here(folder: Path, inputs: dict[str, Array], threads: int = 1) -> dict[str, Array]:
    return runs_here(folder, [inputs], threads)[0]


def runs_here(
    folder: Path, runs: Sequence[Mapping[str, Array]], threads: int = 1
) -> list[dict[str, Array]]:
    """Run repeatedly; return the outputs of each run. State carries over between runs."""
    model = LoadedModel(ReleaseFiles(folder), threads)
    try:
        return [
            {
                spec.name: np.frombuffer(outputs[spec.name].data, BY_NAME[spec.dtype].npy).reshape(
                    spec.shape
                )
                for spec in model.description.outputs
            }
            for outputs, _ in map(model.run, runs)
        ]
    finally:
        model.close()


# Matches families whose kernels have no vector instructions.
PLAIN_C = (
    "auto_scale|channels$|detections|embedding|fixed_fourier|halves|logic|loop|max_roi|movement|"
    "picking|poses|random_bits|roi_align|scatter|select_boxes|top_k|tree_ensemble|unit_length"
)

# Matches families of other operators that the kernels of further families compute as well. They run
# on this machine alone by default; elsewhere they are exhaustive.
VARIANTS = (
    "conv_hybrid|dense_hybrid|depthwise_windows|dynamic|every_operand|large_window|mean_of_sums|"
    "quantized_totals|transpose_conv_8bit|viewed_matmul|wide|zeros_8bit"
)

# Families whose kernels keep NaN. Others compare quantized values, skip weights that are 0 or take
# a maximum, for which ONNX Runtime's results depend on the place of the NaN, too.
KEEPS_NAN = (
    "conv_f32", "depthwise_f32", "dense_f32", "transpose_conv", "binary", "unary", "mean",
    "every_function", "layer_norm", "softmax", "softmax_mean",
)  # fmt: skip


def with_nan(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs with a NaN in the middle of each that has floats."""
    spoiled = {name: array.copy() for name, array in inputs.items()}
    for array in spoiled.values():
        if array.dtype == np.float32 and array.size:
            array.reshape(-1)[array.size // 2] = np.nan
    return spoiled


def check_nan(
    graph: Graph, outputs: Mapping[str, Array], inputs: dict[str, Array], dropped: bool = False
) -> None:
    """NaN where the reference has it; Winograd's transform may spread it further. Activations that
    drop NaN (`dropped`) make their bound of it, which is finite."""
    found = 0
    for name, want in evaluate(graph, inputs).outputs.items():
        bad = np.isinf(outputs[name]) if dropped else ~np.isnan(outputs[name])
        lost = np.isnan(want) & bad
        assert not np.any(lost), (
            f"{name}: {np.argwhere(lost)[0]} of {want.shape} has {outputs[name][lost][0]}"
        )
        found += int(np.isnan(want).sum())
    assert found, "expected NaN in outputs"


def _sum_size(graph: Graph, node: Node) -> float:
    """Magnitude of a sum of k products before a clamp hides it (weights have variance 1)."""
    weights = graph.tensors[node.inputs[1]] if len(node.inputs) > 1 and node.inputs[1] else None
    if weights is None or weights.data is None or not weights.shape:
        return 1e-3
    return (weights.elements / max(weights.shape[0], 1)) ** 0.5


def check(graph: Graph, outputs: dict[str, Array], inputs: dict[str, Array]) -> None:
    """Integers equal; floats within 1e-5 of the largest value, or of the sums behind it."""
    expected = evaluate(graph, inputs).outputs
    for node in graph.nodes:
        for name in node.outputs:
            if name not in expected:
                continue
            got, want = outputs[name], expected[name]
            assert got.shape == want.shape and got.dtype == want.dtype, node
            if want.dtype != np.float32:
                np.testing.assert_array_equal(got, want, err_msg=str(node))
            else:
                # An infinite output must not loosen the tolerance of its neighbors.
                largest = float(np.abs(want[np.isfinite(want)]).max(initial=0))
                limit = 1e-5 * max(largest, _sum_size(graph, node))
                np.testing.assert_allclose(got, want, rtol=0, atol=limit, err_msg=str(node))
