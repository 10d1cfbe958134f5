"""Which method the knowledge base gives a product, and the tile a convolution makes of it."""

from __future__ import annotations

import dataclasses
import math

from edgekit.host.graph.types import Node
from edgekit.host.lower.context import Context
from edgekit.host.lower.window import Window
from edgekit.kb.features import GemmShape
from edgekit.kb.isa import Tile
from edgekit.kb.method import Method, method_of_tile


def choose_tile(
    ctx: Context, node: Node, window: Window, tiles: tuple[Tile, ...], dtype: str
) -> Tile:
    """The register tile of the method for a node's product; the answer is kept for `explain`.

    The product is m = pixels, k = window, n = output channels, its weights packed beforehand.
    `tiles` are those that fit this form. Without a row of the table, or where its tile is none of
    these, the one of least waste is taken. Threads are known only when the model runs, so the
    method is the one of a single thread.
    """
    shape = GemmShape(window.pixels, window.k, window.y[3])
    answer = ctx.table.choose(ctx.board, shape, dtype, packed="b")
    tile = _tile_of(answer.method, ctx.isa.vl)
    if answer.rule == "analytic" or tile not in tiles:
        tile = min(tiles, key=lambda each: _cost(each, ctx.isa.vl, shape))
    if answer.rule == "analytic":
        whole = GemmShape(*(max(size, 1) for size in (shape.m, shape.k, shape.n)))
        width = tile.nv * ctx.isa.vl
        method = method_of_tile(ctx.board, tile.mr, width, whole, dtype, packed="b")
        answer = dataclasses.replace(answer, method=method)
    ctx.answers[node.name] = answer
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
