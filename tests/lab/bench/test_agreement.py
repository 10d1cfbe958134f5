"""The agreement measure, on synthetic outputs."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.errors import InputError
from edgekit.host.lab.bench.agreement import Agreement, compare_output

_REFERENCE = np.array([[1.0, 2.0, -4.0], [0.0, 8.0, 1.0]], np.float32)


def _shifted(amount: float) -> np.ndarray:
    """The reference; call 1's first element is shifted by a fraction of its maximum (8)."""
    moved = _REFERENCE.copy()
    moved[1, 0] += amount * 8
    return moved


def _sets(spread: float = 0.0) -> dict[str, np.ndarray]:
    return {"reference": _REFERENCE, "builtin": _REFERENCE, "xnnpack": _shifted(spread)}


def test_rounding_differences_are_equal():
    result = compare_output(0, _shifted(5e-6), _sets())
    assert result.verdict is Agreement.EQUAL
    assert (result.exact_calls, result.same_top) == (2, 2)
    assert result.worst == pytest.approx(5e-6, rel=0.05)


def test_between_the_sets_is_said_to_be_so():
    result = compare_output(0, _shifted(6e-4), _sets(spread=1e-3))
    assert result.verdict is Agreement.BETWEEN
    assert result.exact_calls == 1
    assert result.nearest == pytest.approx(4e-4, rel=1e-3)
    assert result.spread == pytest.approx(1e-3, rel=1e-3)


def test_farther_than_the_sets_disagree_differs():
    assert compare_output(0, _shifted(-1.1e-3), _sets(spread=1e-3)).verdict is Agreement.APART
    assert compare_output(0, _shifted(2e-5), _sets()).verdict is Agreement.APART


def test_the_spread_is_that_of_the_worst_call():
    ours = _REFERENCE.copy()
    ours[0, 0] += 4e-3  # 1e-3 of call 0's maximum
    assert compare_output(0, ours, _sets(spread=1.1e-3)).verdict is Agreement.BETWEEN
    assert compare_output(0, ours, _sets(spread=0.9e-3)).verdict is Agreement.APART


def test_integers_count_in_steps_and_must_be_equal():
    reference = np.array([[-128, 5, 127]], np.int8)
    ours = np.array([[-128, 6, 127]], np.int8)
    assert compare_output(0, reference, {"reference": reference}).verdict is Agreement.EQUAL
    result = compare_output(0, ours, {"reference": reference})
    assert (result.verdict, result.worst) == (Agreement.APART, 1.0)


def test_nan_never_agrees():
    ours = _REFERENCE.copy()
    ours[0, 0] = np.nan
    assert compare_output(0, ours, _sets()).verdict is Agreement.APART


def test_another_element_on_top_is_counted_and_a_tie_is_not():
    reference = np.array([[1.0, 3.0, 3.0], [1.0, 3.0, 2.9]], np.float32)
    ours = np.array([[1.0, 2.99999, 3.0], [1.0, 2.8, 2.9]], np.float32)
    assert compare_output(0, ours, {"reference": reference}).same_top == 1


def test_another_number_of_elements_is_refused():
    with pytest.raises(InputError, match="expected 3 elements, found 2"):
        compare_output(0, _REFERENCE[:, :2], _sets())
