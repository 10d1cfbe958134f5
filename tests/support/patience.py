"""Timeouts that even a slow machine reaches only if something hangs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

PATIENCE = 120.0  # seconds
AMPLE = 2 * PATIENCE  # a deadline that no call in a test may reach
PROCESS = 15 * PATIENCE  # for a compiler or an emulator beside twenty busy processes


@contextlib.contextmanager
def ends_by_itself() -> Iterator[None]:
    """Fail if the body took so long that only a timeout can have ended it."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < PATIENCE


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; fail on timeout."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
