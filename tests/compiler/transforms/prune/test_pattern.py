"""Which weights a pattern drops, and how the remaining weights of a layer compensate."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.transforms.prune.layer import Moments, errors, prune_layer
from edgekit.host.compiler.transforms.prune.pattern import Pattern, pattern_of
from edgekit.host.errors import InputError


@pytest.mark.parametrize(
    ("text", "sparsity", "expected"),
    [
        ("free", None, Pattern(0.8)),
        ("free", 0.5, Pattern(0.5)),
        ("block", 0.9, Pattern(0.9, outputs=2)),
        ("2:4", None, Pattern(0.5, kept=2, of=4)),
        ("1:4", 0.75, Pattern(0.75, kept=1, of=4)),
    ],
)
def test_names_of_patterns(text, sparsity, expected):
    assert pattern_of(text, sparsity) == expected


@pytest.mark.parametrize(
    ("text", "sparsity", "message"),
    [
        ("free", 1.0, "between 0 and 1, such as 0.8, found 1"),
        ("rows", None, "expected free, block or n:m .* found rows"),
        ("4:4", None, "0 < n < m"),
        ("2:4", 0.8, r"expected 0\.5, the share that 2:4 removes, found 0\.8"),
    ],
)
def test_an_invalid_pattern_is_refused(text, sparsity, message):
    with pytest.raises(InputError, match=message):
        pattern_of(text, sparsity)


def test_the_least_scores_go():
    scores = np.array([[1.0, 8.0, 3.0, 6.0], [7.0, 2.0, 5.0, 4.0]])
    np.testing.assert_array_equal(
        pattern_of("free", 0.5).dropped(scores), [[1, 0, 1, 0], [0, 1, 0, 1]]
    )
    np.testing.assert_array_equal(
        pattern_of("2:4", None).dropped(scores), [[1, 0, 1, 0], [0, 1, 0, 1]]
    )
    # Both outputs drop the inputs with the lowest mean scores.
    scores[1, 3] += 9
    blocks = pattern_of("block", 0.5).dropped(scores)
    np.testing.assert_array_equal(blocks, [[1, 0, 1, 0], [1, 0, 1, 0]])


def test_groups_must_divide_the_inputs():
    assert pattern_of("2:4", None).fits(8) and not pattern_of("2:4", None).fits(10)
    assert pattern_of("free", None).fits(10)


def _layer():
    rng = np.random.default_rng(3)
    rows = rng.normal(0, 1, (200, 8)).astype(np.float32) @ rng.normal(0, 1, (8, 8))
    weights = rng.normal(0, 1, (6, 8)).astype(np.float32)
    return weights, np.ones(6, np.float32), rows.astype(np.float32)


def test_weights_that_stay_make_up_for_those_that_went():
    weights, bias, rows = _layer()
    pattern = pattern_of("2:4", None)
    made = prune_layer(weights, bias, Moments.of([(rows, rows)]), pattern)
    assert made is not None and made.bias is not None
    kept = made.weights != 0
    assert (kept.reshape(6, 2, 4).sum(axis=2) == 2).all()
    wanted = rows @ weights.T + bias
    fitted = rows @ made.weights.T + made.bias - wanted
    cut = rows @ (weights * kept).T + bias - wanted
    assert np.square(fitted).sum() < 0.9 * np.square(cut).sum()


def test_more_zeros_make_larger_errors():
    weights, bias, rows = _layer()
    patterns = [pattern_of("free", share) for share in (0.25, 0.5, 0.75)]
    found = errors(weights, bias, Moments.of([(rows, rows)]), patterns)
    assert found is not None and 0 < found[0] < found[1] < found[2]
