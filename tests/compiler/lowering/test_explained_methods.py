"""For models and boards, the method that `explain` reports is the kernel that is called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.compiler.codegen.section import section_code
from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.explain import explain
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.kb.targets.board import load_profile
from tests.support.places import few_or_all

_MODELS = Path(__file__).parents[3] / "models"
_BOARDS = ("a53", "a76", "a7", "bpi-f3", "rv64gc", "x86-64", "x86-64-v3", "x86-64-v4", "nna1")
_IN_NAMES = {
    "in_place": r"_(conv|dense)_",
    "winograd": r"_winograd_",
    "depthwise": r"_dwconv_",
    "depthwise_chw": r"_dwconv_chw_",
    "sparse": r"_sparse_layer",
    "strips": r"_spmv_layer",
    "chain": r"_chain_",
    "nna": r"_nna_layer",
}
_MULTIPLY = {
    kind.kind
    for kind in (
        ops.Conv2D, ops.DepthwiseConv2D, ops.FullyConnected, ops.ChannelsFirstConv2D,
        ops.ChannelsFirstDepthwiseConv2D, ops.RowChain, ops.PrunedFullyConnected,
        ops.TransposeConv2D, ops.MatMul,
    )
}  # fmt: skip


def _shown(model: str, name: str) -> tuple[dict[str, Any], str]:
    """The output of explain, and the generated code."""
    board = load_profile(name)
    made = prepare(_MODELS / f"{model}.tflite", board)
    scheduled, plan = plan_of(made.graph, board, DEFAULT_OPTIONS)
    code = "".join(section_code(plan, section).text for section in plan.sections)
    return explain(
        scheduled, plan, board, made.counts, made.origin, made.limit, scheduled.costs
    ), code


def _with_members(operator: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield operator
    for member in operator["members"] or []:
        yield from _with_members(member)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "board"),
    [
        *few_or_all(
            (("okay_nabu", board) for board in _BOARDS), [("okay_nabu", b) for b in _BOARDS[::2]]
        ),
        *(
            pytest.param("face_detection_short_range", board, marks=pytest.mark.exhaustive)
            for board in _BOARDS
        ),
        *(("face_detection_full_range_sparse", b) for b in ("a53", "x86-64-v4")),
        *(("hand_landmark_lite", b) for b in ("a76",)),
    ],
)
def test_the_explained_method_is_the_kernel_that_is_called(model, board):
    story, code = _shown(model, board)
    for operator in story["operators"]:
        assert (operator["method"] is not None) == (operator["op"] in _MULTIPLY), operator
        if operator["method"] is None:
            continue
        assert re.search(rf"\b{operator['kernel']}\b", code), operator
        assert operator["rule"] and operator["why"]
        for shown in _with_members(operator):
            method, kernel = shown["method"], shown["kernel"]
            assert re.search(_IN_NAMES[method["family"]], f"{kernel}_"), shown
            if method["family"] in ("in_place", "winograd"):
                assert f"_{method['mr']}x{method['nr']}_" in kernel, shown
                assert kernel.startswith(f"ek_{method['precision']}_")
            other = shown["runner_up"]
            assert other is None or other["method"] != method
            assert other is None or other["relative_cost"] >= 1 or shown["row"] is not None, shown


def test_members_of_a_chain_are_shown():
    story, _ = _shown("hand_landmark_lite", "x86-64-v4")
    chains = [o for o in story["operators"] if o["op"] == ops.RowChain.kind]
    assert chains
    for chain in chains:
        assert len(chain["members"]) == len(chain["chain_of"])
        assert "depthwise" in [m["method"]["family"] for m in chain["members"]]
        short = [m["kernel"].removeprefix("ek_").rsplit("_", 1)[0] for m in chain["members"]]
        assert "_".join(short) in chain["kernel"]


def test_rejected_candidates_are_explained_with_their_costs():
    story, _ = _shown("face_detection_short_range", "a53")
    others = [o["runner_up"] for o in story["operators"] if o["op"] == "conv2d"]
    assert all(o is not None and o["relative_cost"] > 0 for o in others)
