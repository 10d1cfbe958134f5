"""The form of a multiplying operator, and the choice of its method."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from edgekit.host.compiler.costs.methods.operators import (
    Form,
    Kind,
    OperatorMethod,
    candidates_of,
    is_block_outer,
    rows_at_once,
)
from edgekit.host.compiler.ir.ops import (
    DynamicFullyConnected,
    FullyConnected,
    OutlierFullyConnected,
)
from edgekit.host.compiler.ir.types import Array, DType, Node
from edgekit.host.compiler.lowering.choice import Choice, choose
from edgekit.host.compiler.lowering.common.window import Window
from edgekit.host.compiler.lowering.context import Context
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.isa import Tile


def form_of(node: Node, window: Window, dtype: str, weight_bytes: int, row_bytes: int = 0) -> Form:
    """The form of a node's product: m = pixels, k = window, n = output channels.

    `weight_bytes` is the size of the packed weights, `row_bytes` the scratch for rows of 8-bit
    values.
    """
    dense = isinstance(node.op, FullyConnected | OutlierFullyConnected | DynamicFullyConnected)
    kind: Kind = "dense" if dense else "conv"
    return Form(
        kind,
        GemmShape(window.pixels, window.k, window.y[3]),
        dtype,
        window.y[:3],
        window.kernel,
        window.stride,
        window.dilation,
        weight_bytes,
        row_bytes,
        window.padding.any,
        x_bytes=math.prod(window.x) * DType(dtype).bytes,
    )


def zero_tenths(weights: Array) -> int:
    """`zeros` of a form: tenths of the weights that are zero."""
    return round(10 * (1 - np.count_nonzero(weights) / weights.size))


def method_of(ctx: Context, node: Node, form: Form) -> OperatorMethod | None:
    """The method of a node from the knowledge base; None if no kernel fits.

    The reason is recorded for `explain`.
    """
    found = _shared_method(ctx, node, form)
    found = found or choose(ctx.table, ctx.board, ctx.isa, form, ctx.threads)
    if found is None:
        return None
    method, ctx.choices[node.name] = found
    if form.shape.m == 1 and method.family == "in_place" and method.nr:
        ctx.weights.note_panels(node.inputs[1] or "", (method.nr, method.kc))
    return method


def _shared_method(ctx: Context, node: Node, form: Form) -> tuple[OperatorMethod, Choice] | None:
    """The cheapest method that reads weights as another variant packed them for a single row, which
    waits for each byte of them, so that they are stored once."""
    panels = None if form.shape.m == 1 else ctx.weights.panels.get(node.inputs[1] or "")
    if panels is None:
        return None
    row = replace(form, shape=replace(form.shape, m=1))  # some tiles are for single rows only
    for some, split in ((form, None), (row, "n")):
        fitting = [
            c
            for c in candidates_of(some, ctx.isa, ctx.board, ctx.threads)
            if c.method.family == "in_place"
            and (c.method.nr, c.method.kc, c.method.band) == (*panels, None)
            and split in (None, c.method.split)
        ]
        if fitting:
            best = min(fitting, key=lambda c: (not c.by_rule, c.cost))
            why = "reads the weights as they are packed for a single row"
            return best.method, Choice("only", why, form=form, cost=best.cost)
    return None


def block_outer_of(ctx: Context, node: Node, method: OperatorMethod) -> bool:
    """`block_outer` of ek_f32_conv_args."""
    form = ctx.choices[node.name].form
    return form is not None and is_block_outer(method, form, ctx.board)


def band_of(ctx: Context, node: Node, method: OperatorMethod) -> int:
    """`band` of ek_f32_conv_args and ek_i8_conv_args: row tiles per band of the node's method; 0:
    all."""
    form = ctx.choices[node.name].form
    assert form is not None and method.mr is not None
    return rows_at_once(method, form, ctx.board, ctx.threads) // method.mr


def tile_of(method: OperatorMethod, vl: int) -> Tile:
    """The register tile of a tiled method, in vectors of `vl` lanes."""
    assert method.mr is not None and method.nr is not None
    return Tile(method.mr, method.nr // vl)
