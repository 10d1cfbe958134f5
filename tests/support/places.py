"""Faults at many places: all of them in continuous integration, a few at each commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few_or_all(places: Iterable[Any], few: Iterable[Any]) -> list[Any]:
    """`places` as parameters of a test, those that are not among `few` marked slow."""
    few = list(few)
    made = []
    for place in places:
        values = place if isinstance(place, tuple) else (place,)
        made.append(pytest.param(*values, marks=() if place in few else pytest.mark.slow))
    return made
