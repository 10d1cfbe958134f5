"""Measures products on a board with the runtime's gemm-bench command."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from edgekit.host.common.decode import NotAnAnswerError, decode, fitting
from edgekit.host.compiler.toolchain.kernels import build_kernels
from edgekit.host.deploy.release.answers import CostAnswer, GemmAnswer, GemmCounts, GemmTimes
from edgekit.host.deploy.release.runtime import BoardCalls
from edgekit.host.errors import IncompatibleError
from edgekit.host.lab.tune.tuner import MeasuredCost, Question, TimedProduct
from edgekit.kb.targets.board import BoardProfile

_FOLDER = "kernels"
_REQUESTS = f"{_FOLDER}/requests.jsonl"
_PREFIX = "gemm "  # of answer lines on standard error
_INCOMPATIBLE = "incompatible"  # no instruction counter, which affects every product
_SEND_SECONDS = 300.0
_SPARE_SECONDS = 120.0  # for Python on a slow board
_TIMES_OVER = 20.0  # slow products exceed their time budget
_EMULATED_RATE = 1e6  # multiply-adds per second that even a slow emulator reaches


class BoardMeasurer:
    """Sends the kernels of `profile` on first use; `emulated`: counts instructions.

    Raises what the transport and the board's runtime raise.
    """

    def __init__(self, board: BoardCalls, profile: BoardProfile, emulated: bool) -> None:
        self._transport = board.transport
        self._runtime = board
        self._emulated = emulated
        self._library = build_kernels(profile)
        self._path = f"{_FOLDER}/{hashlib.sha256(self._library).hexdigest()[:16]}.so"
        self._sent = False

    @property
    def unit(self) -> str:
        return "instructions" if self._emulated else "seconds"

    def measure(
        self, questions: Sequence[Question], on_answer: Callable[[int, TimedProduct | None], None]
    ) -> None:
        """Reports each answer as soon as it arrives; None: the board could not measure it."""
        if not self._sent:
            self._transport.put(self._library, self._path, deadline=_SEND_SECONDS)
            self._sent = True
        lines = [json.dumps(self._to_request(question)) for question in questions]
        self._transport.put("\n".join(lines).encode(), _REQUESTS, deadline=_SEND_SECONDS)

        failed: list[Exception] = []

        def on_line(line: str) -> None:  # may run on a transport thread
            if failed or not line.startswith(_PREFIX):
                return
            try:
                index, timed = self._parse_answer(line[len(_PREFIX) :], questions)
                on_answer(index, timed)
            except Exception as error:
                failed.append(error)

        self._runtime.call(
            "gemm-bench",
            *("--requests", _REQUESTS, "--library", self._path),
            deadline=self._deadline_seconds(questions),
            on_line=on_line,
        )
        if failed:
            raise failed[0]

    def _to_request(self, question: Question) -> dict[str, Any]:
        product = question.product
        return {
            "dtype": product.dtype,
            **asdict(product.shape),
            "threads": product.threads,
            "side": None if product.packed == "none" else product.packed,
            "methods": [asdict(method) for method in question.methods],
            "default": asdict(question.default),
            **({"count": True} if self._emulated else {"seconds": question.seconds}),
        }

    def _parse_answer(
        self, text: str, questions: Sequence[Question]
    ) -> tuple[int, TimedProduct | None]:
        """The index of a question and its answer."""
        answer = decode(text, GemmAnswer)
        index = answer["index"]
        if index >= len(questions):
            raise NotAnAnswerError(
                f"expected answers to {len(questions)} questions, found one to number {index}"
            )
        if error := answer.get("error"):
            if error["kind"] == _INCOMPATIBLE:
                raise IncompatibleError(f"board '{self._transport.board}': {error['message']}")
            return index, None
        if self._emulated:
            counts = fitting(answer, GemmCounts)
            found = TimedProduct(
                _count_to_cost(counts["default"]),
                tuple(map(_count_to_cost, counts["instructions"])),
            )
        else:
            times = fitting(answer, GemmTimes)
            costs = tuple(map(_time_to_cost, times["times"]))
            found = TimedProduct(_time_to_cost(times["default"]), costs, times["cpu"])
        if len(found.methods) != len(questions[index].methods):
            raise NotAnAnswerError(
                f"expected costs of {len(questions[index].methods)} methods, "
                f"found {len(found.methods)}"
            )
        return index, found

    def _deadline_seconds(self, questions: Sequence[Question]) -> float:
        if not self._emulated:
            return _SPARE_SECONDS + _TIMES_OVER * sum(q.seconds for q in questions)
        work = sum(q.product.shape.operations * (len(q.methods) + 1) for q in questions)
        return _SPARE_SECONDS + 10.0 * work / _EMULATED_RATE


def _time_to_cost(found: CostAnswer) -> MeasuredCost:
    median = found["median_us"]
    low, high = found["p10_us"], found["p90_us"]
    return MeasuredCost(median * 1e-6, (high - low) / median, low * 1e-6)


def _count_to_cost(found: float) -> MeasuredCost:
    return MeasuredCost(float(found), 0.0, float(found))
