"""The knowledge base decides the tile of a product, and the plan says by which rule."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.graph import ops
from edgekit.host.lower.lower import lower
from edgekit.kb import GemmShape, KnowledgeBase
from edgekit.kb.board import BoardProfile, load_board, load_profile
from edgekit.kb.features import Sequences, key_of
from edgekit.kb.gemm_table import Row
from edgekit.kb.method import Method
from tests.support.kernel_runs import build, run_here
from tests.support.op_graphs import Case, constant, graph_of, tensor

_A57 = load_profile("a57")
_SHAPE = GemmShape(30, 16, 24)


def _convolution(shape: GemmShape) -> Case:
    weights = np.linspace(-1, 1, shape.n * shape.k, dtype=np.float32)
    return Case(
        ops.Conv2D(),
        (tensor((1, 1, shape.m, shape.k)), constant(weights.reshape(shape.n, 1, 1, shape.k)), None),
    )


def _table(board: BoardProfile, method: Method) -> KnowledgeBase:
    key = key_of(_SHAPE, 0, Sequences(), packed="b")
    return KnowledgeBase((board.platform,)).with_rows([Row(key, method, _SHAPE, "tuner")])


def _method(mr: int, nr: int) -> Method:
    return Method(mr, 16, nr, pack_a=False, pack_b=True, mr=mr, nr=nr)


@pytest.mark.parametrize(("mr", "nr"), [(8, 8), (6, 12)])
def test_tile_of_an_exact_row_is_taken(mr, nr):
    table = _table(_A57, _method(mr, nr))
    (step,) = lower(graph_of([_convolution(_SHAPE)]), _A57, table).lowered.steps
    assert step.kernel == f"ek_f32_conv_{mr}x{nr}_neon"
    made = step.compiled
    assert made is not None and (made.choice.rule, made.method.mr, made.method.nr) == (
        "exact", mr, nr,
    )  # fmt: skip
    assert made.choice.row is not None and made.choice.row.shape == _SHAPE


def test_tile_that_no_kernel_has_is_replaced():
    table = _table(_A57, _method(5, 20))
    (step,) = lower(graph_of([_convolution(_SHAPE)]), _A57, table).lowered.steps
    assert step.kernel in ("ek_f32_conv_8x8_neon", "ek_f32_conv_6x12_neon")
    assert step.compiled is not None and step.compiled.choice.row is None
    assert "whose tile 5x20 no kernel has" in step.compiled.choice.why


def test_without_rows_the_caches_decide():
    empty = KnowledgeBase((_A57.platform,))
    (step,) = lower(graph_of([_convolution(_SHAPE)]), _A57, empty).lowered.steps
    assert step.compiled is not None and step.compiled.choice.rule == "analytic"


def test_operators_that_are_no_products_have_no_method():
    (step,) = lower(
        graph_of([Case(ops.Add(), (tensor((2, 3)), tensor((2, 3))))]), _A57
    ).lowered.steps
    assert step.compiled is None


@pytest.mark.parametrize("shape", [(1, 40, 33), (7, 40, 1), (1, 1, 1), (9, 3, 50)])
def test_vectors_and_thin_products_are_right(shape, tmp_path):
    case = _convolution(GemmShape(*shape))
    graph = graph_of([case])
    x = np.linspace(-1, 1, shape[0] * shape[1], dtype=np.float32).reshape(1, 1, *shape[:2])
    made = run_here(build(graph, load_board("local"), tmp_path), {"n0_in0": x})
    data = case.ins[1]
    assert data is not None and data.data is not None
    expected = x[0, 0] @ data.data.reshape(shape[2], shape[1]).T
    np.testing.assert_allclose(made["n0_out0"][0, 0], expected, atol=1e-5)
