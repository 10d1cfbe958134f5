"""Group commit: does work that several threads request together, as databases do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Grouped(Generic[_Item, _Result]):
    """Calls `work`, one call at a time, with all items that came during the call before. It returns
    a result for each; if it raises, all who asked get the error."""

    def __init__(self, work: Callable[[Sequence[_Item]], Sequence[_Result]]) -> None:
        self._work = work
        self._asked: SimpleQueue[tuple[_Item, Future[_Result]]] = SimpleQueue()
        self._turn = threading.Lock()

    def ask(self, item: _Item) -> _Result:
        mine: Future[_Result] = Future()
        self._asked.put((item, mine))
        with self._turn:
            if not mine.done():
                # Not in this thread, whose processor time is charged to the board that it serves
                thread = threading.Thread(target=self._serve)
                thread.start()
                thread.join()
        return mine.result()

    def _serve(self) -> None:
        group = [self._asked.get() for _ in range(self._asked.qsize())]
        try:
            results = self._work([item for item, _ in group])
        except BaseException as error:
            for _, future in group:
                future.set_exception(error)
            return
        for (_, future), result in zip(group, results, strict=True):
            future.set_result(result)
