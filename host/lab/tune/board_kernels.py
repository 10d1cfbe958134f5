"""Requests to a board's runtime that measure products of the kernels library."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgekit.host.common.decode import NotAnAnswerError
from edgekit.host.compiler.toolchain.kernels import build_kernels, build_tables
from edgekit.host.deploy.release.product_answers import ProductAnswer
from edgekit.host.deploy.release.runtime import BoardCalls
from edgekit.kb.targets.board import BoardProfile

_FOLDER = "kernels"
_SEND_SECONDS = 600.0
_SPARE_SECONDS = 300.0  # for Python on a slow board
_TIMES_OVER = 20.0  # slow products exceed their time budget


class BoardKernels:
    """The kernels of `profile` and their table of products on a board, sent at once; `emulated`:
    counts instructions."""

    def __init__(self, board: BoardCalls, profile: BoardProfile, emulated: bool) -> None:
        self._board = board
        self._emulated = emulated
        library, (table, _) = build_kernels(profile), build_tables(profile)
        self._library = f"{_FOLDER}/{_digest(library + table)}.so"
        self._put(table, f"{self._library}.table")
        self._put(library, self._library)

    @property
    def unit(self) -> str:
        """What is measured: seconds or instructions."""
        return "instructions" if self._emulated else "seconds"

    def measure(
        self,
        command: str,
        operands: Mapping[str, np.ndarray[Any, Any]],
        request: Mapping[str, Any],
        seconds: float,
    ) -> dict[str, Any]:
        """The answer of a command that measures products of these arrays for so many seconds."""
        name = self.send(operands)
        asked = {"operands": name, "seconds": seconds, "count": self._emulated, **request}
        try:
            return self.ask(command, asked, seconds)
        finally:
            self.forget(name)

    def send(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
        """Sends operands for later requests; returns their file's name on the board."""
        file = io.BytesIO()
        np.savez(file, **arrays)  # type: ignore[arg-type]
        name = f"{_FOLDER}/{_digest(file.getvalue())}.npz"
        self._put(file.getvalue(), name)
        return name

    def forget(self, name: str) -> None:
        """Removes a file that `send` sent."""
        self._board.transport.remove(name, deadline=_SEND_SECONDS)

    def ask(self, command: str, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The answer of a command that measures for so many seconds."""
        name = f"{_FOLDER}/{command}.json"
        self._put(json.dumps(request).encode(), name)
        return self._board.call(
            command,
            *("--request", name, "--library", self._library),
            deadline=_SPARE_SECONDS + _TIMES_OVER * seconds,
        )

    def _put(self, data: bytes, name: str) -> None:
        self._board.transport.put(data, name, deadline=_SEND_SECONDS)


def median_cost(answer: ProductAnswer) -> float:
    """The median in seconds, or instructions."""
    if "instructions" in answer:
        return float(answer["instructions"])
    if "time" in answer:
        return 1e-6 * answer["time"]["median_us"]
    raise NotAnAnswerError("expected the time or instructions of a product, found neither")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
