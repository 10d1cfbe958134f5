"""Tolerances of outputs: which elements share one, and which are not compared."""

from __future__ import annotations

import numpy as np

from edgekit.device.runtime.agent.specs import NOT_COMPARED
from edgekit.host.compiler.golden.margins import flips, margin_of, moved


def test_channels_that_move_less_have_a_tighter_bound():
    golden = np.full((32, 2), 1.25, np.float32)
    movement = np.tile(np.float32([1e-5, 0.1]), (32, 1))
    margin = margin_of(golden, [movement], is_index=False)
    assert 0.2 <= margin.tolerance < 0.21
    assert margin.codes is not None
    tight, loose = np.unique(margin.codes[:, 0]), np.unique(margin.codes[:, 1])
    assert (tight.size, loose.tolist()) == (1, [0])
    assert 2e-5 <= margin.tolerance * 2.0 ** -int(tight[0]) < 2 * 5e-5


def test_few_elements_are_no_sample_of_their_channel():
    golden = np.full((8, 2), 1.25, np.float32)
    movement = np.tile(np.float32([1e-5, 0.1]), (8, 1))
    assert margin_of(golden, [movement], is_index=False).codes is None


def test_elements_of_a_similar_magnitude_share_a_bound():
    golden = np.repeat(np.float32([0.01, 100]), 20)
    margin = margin_of(golden, [np.repeat(np.float32([1e-6, 1e-1]), 20)], is_index=False)
    assert margin.codes is not None
    assert margin.codes[:20].min() > margin.codes[20:].max() == 0


def test_zeros_may_move_as_far_as_any_element():
    golden = np.repeat(np.float32([0, 1.25]), 32).reshape(2, 32).T.copy()
    movement = np.tile(np.float32([1e-5, 0.1]), (32, 1))
    margin = margin_of(golden, [movement], is_index=False)
    assert margin.codes is None or margin.codes[:, 0].max() == 0


def test_indices_and_booleans_that_change_are_not_compared():
    for golden, is_index in ((np.int32([1, 2, 3]), True), (np.bool_([0, 1, 1]), False)):
        margin = margin_of(golden, [np.array([0.0, 1.0, 0.0])], is_index)
        assert margin.tolerance == 0.0
        assert margin.codes is not None
        assert margin.codes.tolist() == [0, NOT_COMPARED, 0]
    assert margin_of(np.int32([1, 2]), [np.zeros(2)], is_index=True).codes is None


def test_what_becomes_infinite_or_is_nan_is_not_compared():
    golden = np.float32([*[1.0] * 30, np.nan])
    movement = moved(golden, np.float32([np.inf, *[1.0] * 29, np.nan]))
    assert np.isinf(movement[0]) and movement[1:].max() == 0
    assert flips(golden, movement) == 1
    codes = margin_of(golden, [movement], is_index=False).codes
    assert codes is not None
    assert np.flatnonzero(codes == NOT_COMPARED).tolist() == [0, 30]


def test_integers_that_change_are_counted():
    golden = np.int8([1, 2, 3])
    movement = moved(golden, np.int8([1, 4, 2]))
    assert movement.tolist() == [0, 2, 1]
    assert flips(golden, movement) == 2


def test_an_output_of_rank_0():
    margin = margin_of(np.array(1.25, np.float32), [np.array(0.1, np.float32)] * 3, is_index=False)
    assert 0.2 <= margin.tolerance < 2.0
    assert margin.codes is None
