"""Untrusted answers from boards: every false answer gives a named error or does no harm."""

from __future__ import annotations

import copy
import io
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.agent.commands import main as device_main
from edgekit.device.runtime.agent.wire import pack, receive
from edgekit.host.cli.model_times import measured_document
from edgekit.host.cli.report import show_slowest, show_times
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.doctor.board import compare
from edgekit.host.deploy.release import count_instructions, enroll_unsigned, probe
from edgekit.host.deploy.release.answers import ANSWERS
from edgekit.host.deploy.transport import Completed, LocalTransport, OnBytes, OnLine, Stream
from edgekit.host.deploy.transport.base import name_of
from edgekit.host.errors import EdgekitError, TransferError
from edgekit.kb.targets.board import load_board

pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]
X = {"x": np.array([1, 2, 3, -4], np.float32)}
WRONG: tuple[Any, ...] = (
    *(None, True, -1, 1 << 80, 10**400, 1.5, math.nan, 1e300),
    *("", "a\x1b[2Jb\nc\u202e", "x" * 70_000, [], ["x"], [[]], {}, {"a": 1}),
)


Lie = Callable[[str], Completed | None]


class RecordedStream:
    """A stream that replays `data`, or records what the real stream returns."""

    def __init__(self, data: bytes, real: Stream | None = None) -> None:
        self.data = data
        self.real = real

    def send(self, data: bytes, *, deadline: float) -> None:
        if self.real:
            self.real.send(data, deadline=deadline)

    def receive(self, size: int, *, deadline: float) -> bytes:
        if self.real:
            said = self.real.receive(size, deadline=deadline)
            self.data += said
            return said
        said, self.data = self.data[:size], self.data[size:]
        return said

    def close(self, *, deadline: float) -> Completed:
        return self.real.close(deadline=deadline) if self.real else Completed(0, b"", b"")


class Lying(LocalTransport):
    """A board that answers each request honestly once, then lies."""

    heard: dict[str, bytes]
    opened: RecordedStream
    output = b""
    lie: Lie | None = None
    replayed: bytes | None = None  # what a session answers instead

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        name = name_of(command)
        if self.lie is not None:
            return self.lie(name) or Completed(0, self.heard.get(name, b"{}"), b"")
        done = super().run(command, deadline=deadline, on_line=on_line)
        self.heard[name] = done.stdout
        return done

    def open(self, command: Sequence[str], *, deadline: float) -> RecordedStream:  # type: ignore[override]
        if self.replayed is not None:
            return RecordedStream(self.replayed)
        if self.lie is not None and (lie := self.lie(name_of(command))):
            return RecordedStream(lie.stdout)
        self.opened = RecordedStream(b"", super().open(command, deadline=deadline))
        return self.opened

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        if self.lie is None:
            super().put(data, path, deadline=deadline, on_bytes=on_bytes)

    def get(self, path: str, *, deadline: float, on_bytes: OnBytes | None = None) -> bytes:
        if self.lie is None:
            self.output = super().get(path, deadline=deadline, on_bytes=on_bytes)
        return self.output

    def remove(self, path: str, *, deadline: float) -> None:
        if self.lie is None:
            super().remove(path, deadline=deadline)


@pytest.fixture(scope="module")
def lying(tmp_path_factory: pytest.TempPathFactory, tiny: TinyBundle) -> Iterator[Lying]:
    """A lying board with the tiny model deployed."""
    folder = tmp_path_factory.mktemp("lying")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_HOME", str(folder / "home"))
        board = Lying(folder / "board", "b")
        board.heard = {}
        enroll_unsigned(Device(board))
        Device(board).deploy(tiny())
        for ask in QUESTIONS.values():
            ask(board, tiny)
        board.heard["preview"] = board.opened.data
        yield board


def _bench(board: Lying) -> None:
    timing = Device(board).bench(count=2, seconds=1)
    show_times(timing, emulated=False)
    show_slowest(timing, emulated=False)
    json.dumps(measured_document("b", timing, emulated=False))


QUESTIONS: dict[str, Callable[[Lying, TinyBundle], object]] = {
    "probe": lambda board, _: list(compare(probe(Device(board)), load_board("local"), 0.0)),
    "status": lambda board, _: Device(board).status(),
    "enroll": lambda board, _: enroll_unsigned(Device(board)),
    "bench": lambda board, _: _bench(board),
    "plan": lambda board, tiny: Device(board).deploy(tiny()),
    "preview": lambda board, tiny: Device(board).plan(tiny()),
}


# One of so many false answers is tried, as a preview has about a thousand parts. None shares a
# factor with the number of false values of a part, so each value occurs.
_STEPS = {"preview": 97, "probe": 7, "plan": 7}


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_part_of_an_answer_may_be_wrong(
    name: str, lying: Lying, tiny: TinyBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    true = json.loads(lying.heard[name])
    answers: list[bytes] = []
    lying.lie = lambda command: Completed(0, answers[0], b"") if command == name else None
    named = 0
    step = 1 if "EDGEKIT_TEST_ALL" in os.environ else _STEPS.get(name, 1)
    for wrong in itertools.islice(_wrong(true), 0, None, step):
        answers[:] = [json.dumps(wrong).encode()]
        try:
            QUESTIONS[name](lying, tiny)
        except EdgekitError as error:
            named += 1
            assert len(str(error)) < 3000
    assert named > 10
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "\u202e" not in printed


@pytest.fixture
def replaying(lying: Lying) -> Iterator[Lying]:
    """The lying board, which replays sessions in this test only."""
    yield lying
    lying.replayed = None


def test_every_part_of_a_session_may_be_wrong(replaying: Lying) -> None:
    lying = replaying
    lying.lie = None
    Device(lying).run(X)
    real = lying.opened
    source = io.BytesIO(real.data)
    messages = [receive(source.read, 1000) for _ in range(2)]
    named = 0
    for number, (document, arrays) in enumerate(messages):
        for wrong in itertools.islice(_wrong(document), 0, None, 3):
            if not isinstance(wrong, dict):
                continue
            shown = [pack(d, a) for d, a in messages]
            shown[number] = pack(wrong, arrays)
            lying.replayed = b"".join(shown)
            try:
                Device(lying).run(X)
            except EdgekitError as error:
                named += 1
                assert len(str(error)) < 3000 and str(error).isprintable()
    assert named > 100
    for size in range(0, len(real.data), 11):
        lying.replayed = real.data[:size]
        with pytest.raises(EdgekitError):
            Device(lying).run(X)


def _wrong(true: Any) -> Iterator[Any]:
    """Copies of the document with one part replaced by an invalid value or removed."""
    yield from WRONG
    for path in _paths(true):
        for value in (*WRONG, ...):
            document = copy.deepcopy(true)
            part = document
            for key in path[:-1]:
                part = part[key]
            if value is ...:
                del part[path[-1]]
            else:
                part[path[-1]] = value
            yield document


def _paths(part: Any) -> Iterator[tuple[Any, ...]]:
    items = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in items:
        if key == "schema":
            continue
        yield (key,)
        if isinstance(value, (dict, list)):
            for path in _paths(value):
                yield (key, *path)


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (Completed(3, b"", b""), "expected a JSON document, found exit code 3"),
        (Completed(-9, b"", b"\x1b[31mred"), r"found it killed by SIGKILL: \\x1b\[31mred"),
        (Completed(0, b"[" * 100_000, b""), "expected a JSON document"),
        (Completed(0, b'{"a":' * 100_000, b""), "expected a JSON document"),
        (Completed(0, b"\xff\xfe", b""), "expected a JSON document"),
        (Completed(0, b"[]", b""), "one that does not fit: Expected `object`, got `array`"),
        (Completed(0, b"null", b""), "one that does not fit"),
        (Completed(0, b'{"error": "x"}', b""), r"Expected `object . null`, got `str`"),
        (Completed(0, b'{"error": {"kind": []}}', b""), "one that does not fit"),
        (Completed(0, b'{"error": {"kind": "transfer"}}', b""), "missing required field `message`"),
        (Completed(6, b'{"error": {"kind": "transfer", "message": "a\\u001b["}}', b""), r"\\x1b"),
    ],
)
def test_an_invalid_answer_is_named(answer: Completed, match: str, lying: Lying) -> None:
    lying.lie = lambda command: answer
    with pytest.raises(TransferError, match=match) as caught:
        Device(lying).status()
    assert str(caught.value).startswith("board 'b': ") and len(str(caught.value)) < 400


def test_another_release_than_was_asked_for_is_no_plan(lying: Lying, tiny: TinyBundle) -> None:
    true = json.loads(lying.heard["preview"])
    for plan in (None, {**true["plan"], "release": "0" * 16}):
        shown = json.dumps({**true, "plan": plan}).encode()
        answer = Completed(0, shown, b"")
        lying.lie = lambda command, answer=answer: answer  # type: ignore[misc]
        with pytest.raises(TransferError, match="expected a plan for release"):
            Device(lying).plan(tiny())


def test_counts_are_checked_as_well(lying: Lying) -> None:
    true = {"release": "0" * 16, "model": "m", "per_inference": 5, "user_only": True}
    lying.lie = lambda command: Completed(0, json.dumps(true).encode(), b"")
    with pytest.raises(TransferError, match="missing required field `samples`"):
        count_instructions(Device(lying))


def test_every_command_of_the_runtime_has_an_answer_that_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    device_main(["no such command"])
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    names = message.partition("choose from ")[2].partition(")")[0].split(",")
    assert set(ANSWERS) == {name.strip(" '") for name in names}
