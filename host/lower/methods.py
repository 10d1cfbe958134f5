"""The method that the knowledge base gives a product, and the tile a convolution makes of it."""

from __future__ import annotations

import math

from edgekit.host.graph.types import Node
from edgekit.host.lower.context import Context
from edgekit.host.lower.window import Window, panel_outer
from edgekit.kb.features import GemmShape
from edgekit.kb.isa import BYTES, Tile
from edgekit.kb.method import Method, Split
from edgekit.kb.operators import Choice, OperatorMethod, RunnerUp


def choose_tile(
    ctx: Context, node: Node, window: Window, tiles: tuple[Tile, ...], dtype: str
) -> Tile:
    """The register tile of the method for a node's product; why it is that is kept.

    The product is m = pixels, k = window, n = output channels, its weights packed beforehand.
    `tiles` are those that fit this form. Without a row of the table, or where its tile is none of
    these, the one of least waste is taken. Threads are known only when the model runs, so the
    method is the one of a single thread. No table has products of f16 yet: these have no answer.
    """
    shape = GemmShape(window.pixels, window.k, window.y[3])
    if dtype == "f16":
        return min(tiles, key=lambda each: _cost(each, ctx.isa.vl, shape))
    answer = ctx.table.choose(ctx.board, shape, dtype, packed="b")
    tile = _tile_of(answer.method, ctx.isa.vl)
    rule, why = answer.rule, answer.why
    if rule != "analytic" and tile not in tiles:
        rule, why = "analytic", f"{why}, whose tile {tile.mr}x{answer.method.nr} no kernel has"
    if rule == "analytic":
        tile = min(tiles, key=lambda each: _cost(each, ctx.isa.vl, shape))
    row = None if rule == "analytic" else answer.row
    split: Split = "n" if panel_outer(ctx.board, shape.k * shape.n * BYTES[dtype]) else "m"
    others = [
        RunnerUp(
            OperatorMethod("in_place", dtype, each.mr, each.nv * ctx.isa.vl, split),
            _cost(each, ctx.isa.vl, shape) / _cost(tile, ctx.isa.vl, shape),
        )
        for each in tiles
        if each != tile
    ]
    best = min(others, key=lambda other: other.price, default=None)
    ctx.choices[node.name] = Choice(rule, why, row, best)
    return tile


def _tile_of(method: Method, vl: int) -> Tile:
    return Tile(method.mr, math.ceil(method.nr / vl))


def _cost(tile: Tile, vl: int, shape: GemmShape) -> float:
    """Vector multiply-adds plus what loading operands adds; panels.h does not share the rows out
    evenly, so that a last tile costs as much as a whole one."""
    vectors = math.ceil(shape.n / vl)
    whole, rest = divmod(vectors, tile.nv)
    per_row = [tile.nv] * whole + ([rest] if rest else [])
    return math.ceil(shape.m / tile.mr) * sum(tile.mr * nv + 0.5 * (tile.mr + nv) for nv in per_row)
