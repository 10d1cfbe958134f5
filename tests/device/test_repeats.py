"""The process that repeats inferences of a C program: what it reads, answers and sends home."""

from __future__ import annotations

import mmap
import socket
import struct
import threading
from collections.abc import Callable
from typing import NoReturn

from edgekit.device.runtime.agent.batch import Batch
from edgekit.device.runtime.agent.repeats import serve
from edgekit.device.runtime.errors import IncompatibleError
from tests.device.test_shadow import FREE, Model, shadow_of

_SIZES = [5, 2, 3]  # bytes of the states, of "in" and of "out"
_DONE = struct.pack("=QQQ", 4, 4_000_000, 1000)


class _Program:
    """The C program's end: its memory and socket."""

    def __init__(self, model: Callable[[], Model], every: int = 1, budget: float = FREE) -> None:
        self.batches: list[Batch] = []
        self.link, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        block = mmap.mmap(-1, sum(_SIZES))
        block[:] = b"stateinout"
        shadow = shadow_of(model, self.batches, every, budget)
        self._process = threading.Thread(target=self._serve, args=(shadow, other, block))
        self._process.start()

    def _serve(self, *arguments: object) -> None:
        with arguments[1]:  # type: ignore[attr-defined]
            serve(*arguments, _SIZES, 1)  # type: ignore[arg-type]

    def ask(self) -> tuple[int, int] | None:
        """Has an inference repeated; returns how many to skip and until when, if any."""
        self.link.send(_DONE)
        answer = self.link.recv(100)
        return struct.unpack("=QQ", answer) if answer else None

    def end(self) -> None:
        self.link.close()
        self._process.join()


def test_what_the_program_shares_is_repeated_and_reported_at_its_end() -> None:
    model = Model(7)
    program = _Program(lambda: model, every=10)
    answers = [program.ask() for _ in range(50)]
    assert {skip for skip, _ in filter(None, answers)} <= set(range(19))
    assert len(set(answers)) > 1  # irregular distances
    program.end()
    (batch,) = program.batches
    assert (batch.inferences, batch.whole.samples) == (200, 50)
    assert model.states == [b"state"] * 50
    assert model.calls == -1  # it was closed


def test_inferences_pay_for_repeating() -> None:
    program = _Program(lambda: Model(2_000_000), budget=0.005)
    found = program.ask()
    assert found is not None
    assert found[1] >= 2_001_000 / 0.005
    program.end()


def test_a_float_model_that_cannot_run_ends_the_process() -> None:
    def fail() -> NoReturn:
        raise IncompatibleError("no")

    program = _Program(fail)
    assert program.ask() is None
    program.end()
    assert program.batches == []
