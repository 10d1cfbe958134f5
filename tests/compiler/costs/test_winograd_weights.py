"""Weights that inferences transform are made in as few parts as the arena has room for."""

from __future__ import annotations

import pytest

from edgekit.host.compiler.costs.methods.winograd import Transformed
from edgekit.host.compiler.costs.methods.winograd_weights import WinogradWeights
from edgekit.kb.targets.board import load_board
from edgekit.kb.targets.isa import Tile


@pytest.mark.parametrize("board", ["rpi3", "rk3566", "rpi4", "rpi5"])
def test_transforming_tiles_again_costs_more_than_reading_weights_again(board):
    """Of 40 x 40 pixels, with more weights than the caches hold: in four parts, an A72 took 1.5
    times as long."""
    work = Transformed(100, 128, 128, 4, Tile(8, 2))
    weights = WinogradWeights(work, "f32", 9 * 128 * 128 * 4, load_board(board), 1)
    assert weights.cost_of_made(1) < weights.cost_of_made(4)
