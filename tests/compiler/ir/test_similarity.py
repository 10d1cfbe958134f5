"""The cosine that says how much an approximation changes outputs."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.ir.similarity import least_cosine

_Y = np.float32([3, 4])


@pytest.mark.parametrize(
    ("found", "cosine"), [(_Y, 1.0), (-_Y, -1.0), (0 * _Y, 1.0), (_Y * np.nan, -1.0)]
)
def test_nothing_is_like_anything_but_nan(found: np.ndarray, cosine: float) -> None:
    assert least_cosine({"y": _Y}, {"y": found}) == cosine


def test_the_least_similar_output_counts() -> None:
    wanted = {"same": _Y, "turned": _Y, "empty": np.zeros(0, np.float32)}
    assert least_cosine(wanted, wanted | {"turned": np.float32([-4, 3])}) == 0.0
