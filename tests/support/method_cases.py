"""Operators, and tables that assign a method to each of them."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.costs.methods.operators import Form, OperatorMethod, candidates_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Padding
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase, OperatorRow
from edgekit.kb.features import GemmShape, Sequences, key_of
from edgekit.kb.targets.board import BoardProfile
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of


def every_method(
    board: BoardProfile, dtype: str
) -> tuple[Graph, KnowledgeBase, list[OperatorMethod]]:
    """One convolution per method of a board, each with a different window, with padding."""
    form = form_of_points(GemmShape(35, 45, 37), dtype)
    candidates = candidates_of(form, board.isa, board)
    methods = sorted(c.method for c in candidates if c.method.split == "m")
    windows = [(h, w) for h in range(1, 6) for w in range(1, 6)]
    made = [over_a_border(dtype, window) for _, window in zip(methods, windows, strict=False)]
    rows = [(form, method) for (_, form), method in zip(made, methods, strict=True)]
    return graph_of([case for case, _ in made]), table_of_operators(board, *rows), methods


def table_of_operators(
    board: BoardProfile, *rows: tuple[Form, OperatorMethod | None], threads: int = 1
) -> KnowledgeBase:
    """A table with a method for each of these forms, which also covers nearby shapes."""
    made = []
    for form, method in rows:
        key = key_of(form.shape, 0, Sequences(), form.dtype, threads, "b", form.name)
        made.append(OperatorRow(key, method, form.shape, "tuner", 0.9, 30))
    return KnowledgeBase((board.platform,), operators=tuple(made))


def form_of_points(shape: GemmShape, dtype: str = "f32") -> Form:
    return Form("conv", shape, dtype, (1, 1, shape.m), weight_bytes=4 * shape.k * shape.n)


def over_a_border(dtype: str, window: tuple[int, int]) -> tuple[Case, Form]:
    (kh, kw), rng = window, np.random.default_rng(8)
    op = ops.Conv2D(padding=Padding(kh // 2, kh // 2, kw // 2, kw // 2), activation=Activation.RELU)
    h, w = 5 + 2 * (kh // 2) - kh + 1, 7 + 2 * (kw // 2) - kw + 1
    form = Form("conv", GemmShape(h * w, kh * kw * 5, 37), dtype, (1, h, w), window)
    if dtype == "f32":
        weights = constant(rng.standard_normal((37, kh, kw, 5)).astype(np.float32))
        return Case(op, (tensor((1, 5, 7, 5)), weights, None)), form
    x = tensor((1, 5, 7, 5), DType.I8, quant(0.05, 3))
    weights = constant(rng.integers(-127, 128, (37, kh, kw, 5)), DType.I8, quant(0.01, 0))
    return Case(op, (x, weights, None), quant(0.3, -5)), form
