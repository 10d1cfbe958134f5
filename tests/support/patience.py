"""Waiting, however slow the machine: only what never comes, or never ends, takes this long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

PATIENCE = 120.0  # seconds
AMPLE = 2 * PATIENCE  # a deadline that no call of a test may reach


@contextlib.contextmanager
def ends_by_itself() -> Iterator[None]:
    """Fails where the body took so long that something else must have ended it."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < PATIENCE


def until(condition: Callable[[], bool]) -> None:
    """Waits for it; fails where it does not come."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
