"""Faults at many places: a few by default, all of them with `scripts/test --all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few_or_all(places: Iterable[Any], few: Iterable[Any]) -> list[Any]:
    """`places` as test parameters; those not in `few` are marked exhaustive."""
    few = list(few)
    made = []
    for place in places:
        values = place if isinstance(place, tuple) else (place,)
        made.append(pytest.param(*values, marks=() if place in few else pytest.mark.exhaustive))
    return made
