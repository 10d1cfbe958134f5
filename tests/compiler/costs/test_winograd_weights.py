"""Transformed weights are read in parts where a core waits for memory otherwise."""

from __future__ import annotations

import pytest

from edgekit.host.compiler.costs.methods.winograd import Transformed
from edgekit.host.compiler.costs.methods.winograd_weights import WinogradWeights
from edgekit.kb.targets.board import load_board
from edgekit.kb.targets.isa import Tile


@pytest.mark.parametrize(("channels", "divided"), [(32, False), (64, True)])
def test_weights_beyond_the_cache_of_an_a53_are_divided(channels, divided):
    """Of 40 x 40 pixels. 64 channels have 590 KB of weights: more than the board's L2."""
    work = Transformed(100, channels, channels, 4, Tile(8, 2))
    own = 9 * channels * channels * 4
    _, parts = WinogradWeights(work, "f32", own, load_board("rpi3"), 1).stored()
    assert (parts > 1) == divided
