"""Python functions that are called while a test works, seen by the interpreter's own hook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def observed_calls(of: Callable[..., Any] | None = None) -> Iterator[list[tuple[Any, ...]]]:
    """Yields a list that receives the positional arguments of each call of `of` in this thread.

    Without `of`, each call of any Python function adds an empty tuple.
    """
    code = None if of is None else of.__code__
    calls: list[tuple[Any, ...]] = []

    def see(frame: FrameType, event: str, _arg: object) -> None:
        if event != "call":
            return
        if code is None:
            calls.append(())
        elif frame.f_code is code:
            calls.append(tuple(frame.f_locals[n] for n in code.co_varnames[: code.co_argcount]))

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield calls
    finally:
        sys.setprofile(before)
