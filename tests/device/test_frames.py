"""Frames and the link: streams arrive intact, whatever the line does to them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.device.runtime.agent.frames import HANGUP, WINDOW, FrameLink, decode, encode
from edgekit.device.runtime.agent.messages import OUT, BrokenStreamError, Message, MessageChannel

SESSION = 0xC0FFEE
# Bytes that terminals and terminal servers interpret: flow control, Ctrl-C, newlines, telnet.
FORBIDDEN = frozenset(range(32)) | {0x7F, 0xFF}


@given(payload=st.binary(max_size=1024), number=st.integers(0, 2**32 - 1), text=st.booleans())
def test_a_frame_is_what_it_was(payload: bytes, number: int, text: bool) -> None:
    line = encode(b"D", number, payload, SESSION, text)
    assert not FORBIDDEN & set(line)
    assert not text or max(line) < 128
    assert line.count(b"~") == 2
    frame = decode(line.strip(b"~"), SESSION)
    assert frame is not None
    assert (frame.kind, frame.number, frame.payload, frame.text) == (b"D", number, payload, text)


@given(payload=st.binary(max_size=200), bit=st.integers(0, 10_000), text=st.booleans())
def test_one_wrong_bit_is_noticed(payload: bytes, bit: int, text: bool) -> None:
    line = bytearray(encode(b"D", 7, payload, SESSION, text).strip(b"~"))
    line[bit // 8 % len(line)] ^= 1 << bit % 8
    frame = decode(bytes(line), SESSION)
    # Flipping the case of the kind changes how the payload is decoded; the checksum then fails.
    assert frame is None or (frame.number, frame.payload) == (7, payload)


@given(st.binary(max_size=300))
def test_an_invalid_frame_is_none(chunk: bytes) -> None:
    assert decode(chunk, SESSION) is None


def test_frames_of_another_session_are_none() -> None:
    assert decode(encode(b"D", 0, b"x", SESSION + 1, False).strip(b"~"), SESSION) is None


class Line:
    """Two links joined by a faulty line; the clock advances when neither has output."""

    def __init__(self, seed: int, drop: float, flip: float, noise: float, mask: int = 255) -> None:
        self.now = 0.0
        self.ends = (FrameLink(SESSION, 0.0, caller=True), FrameLink(SESSION, 0.0, caller=False))
        self.heard = [b"", b""]
        self._random = random.Random(seed)
        self._faults = drop, flip, noise
        self._mask = mask

    def run(self, wanted: tuple[bytes, bytes], seconds: float = 600) -> None:
        """Runs until each end has received the `wanted` bytes."""
        while tuple(self.heard) != wanted and self.now < seconds:
            moved = self._move(0) + self._move(1)
            if not moved:
                wakes = [wake for end in self.ends if (wake := end.wake_at()) is not None]
                self.now = max(self.now, min(wakes, default=seconds)) + 1e-6

    def _move(self, sender: int) -> int:
        data = b"".join(self.ends[sender].output(self.now))
        self.now += len(data) / 11_520
        self.heard[1 - sender] += self.ends[1 - sender].receive(self._spoil(data), self.now)
        return len(data)

    def _spoil(self, data: bytes) -> bytes:
        drop, flip, noise = self._faults
        out = bytearray()
        for byte in data:
            if self._random.random() < flip:
                byte ^= 1 << self._random.randrange(8)
            if self._random.random() >= drop:
                out.append(byte & self._mask)
            if self._random.random() < noise:
                out += b"\r\n[ 1.0] eth0: link ~ up ~D}\r\n"
        return bytes(out)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("drop", "flip", "noise"),
    [(0, 0, 0), (1e-3, 0, 0), (0, 1e-3, 0), (0, 0, 1e-3), (3e-4, 3e-4, 3e-4)],
)
def test_the_stream_comes_out_as_it_went_in(
    seed: int, drop: float, flip: float, noise: float
) -> None:
    up, down = random.Random(seed).randbytes(60_000), random.Random(~seed).randbytes(9_000)
    line = Line(seed, drop, flip, noise)
    line.ends[0].send(up)
    line.ends[1].send(down)
    line.run((down, up))
    assert line.heard == [down, up]
    if drop + flip + noise:
        assert line.ends[0].resent > 3
    else:
        assert line.ends[0].resent == line.ends[1].resent == 0
        assert line.now < 1.3 * len(up + down) / 11_520


def test_a_line_of_seven_bits_is_found_out() -> None:
    data = bytes(range(256)) * 50
    line = Line(1, 0, 0, 0, mask=127)
    line.ends[0].send(data)
    line.run((b"", data))
    assert line.heard[1] == data
    assert all(end.text for end in line.ends)


def test_what_an_echo_sends_back_is_not_the_other_end() -> None:
    link = FrameLink(SESSION, 0.0, caller=True)
    link.send(b"words")
    echoed = b"".join(link.output(0.0))
    assert link.receive(echoed, 1.0) == b""
    assert link.heard_at == 0.0


def test_no_more_than_a_window_is_in_flight() -> None:
    link = FrameLink(SESSION, 0.0, caller=True)
    link.send(bytes(1 << 20))
    assert len(link.output(0.0)) == WINDOW
    assert link.output(0.1) == []


def test_only_the_oldest_goes_again_after_silence() -> None:
    link = FrameLink(SESSION, 0.0, caller=True)
    link.send(bytes(1 << 20))
    first = link.output(0.0)[0]
    wake = link.wake_at()
    assert wake is not None
    assert link.output(wake) == [first]


@pytest.mark.parametrize(("round_trip", "wait"), [(0.02, 0.3), (0.5, 1.5), (4.0, 6.0)])
def test_silence_lasts_three_round_trips_within_bounds(round_trip: float, wait: float) -> None:
    link, other = (FrameLink(SESSION, 0.0, caller=caller) for caller in (True, False))
    link.send(b"words")
    other.receive(b"".join(link.output(0.0)), round_trip)
    link.receive(b"".join(other.output(round_trip)), round_trip)
    link.send(b"more")
    link.output(round_trip)
    assert link.wake_at() == pytest.approx(round_trip + wait)


def test_hangup_is_heard_in_any_session() -> None:
    link = FrameLink(SESSION, 0.0, caller=False)
    link.receive(b"noise" + HANGUP, 0.0)
    assert link.hung_up


def test_endless_noise_takes_no_memory() -> None:
    link = FrameLink(SESSION, 0.0, caller=False)
    for _ in range(1000):
        assert link.receive(b"x" * 1000, 0.0) == b""
    assert len(link._buffer) < 10_000


@given(st.lists(st.binary(max_size=3000), max_size=8))
def test_messages_come_as_they_were(payloads: list[bytes]) -> None:
    here, there = (
        MessageChannel(SESSION, 0.0, caller=True),
        MessageChannel(SESSION, 0.0, caller=False),
    )
    for payload in payloads:
        here.send(OUT, payload)
    found: list[Message] = []
    for _ in range(20):
        found += there.receive(b"".join(here.link.output(0.0)), 0.0)
        here.receive(b"".join(there.link.output(0.0)), 0.0)
    assert found == [Message(OUT, payload) for payload in payloads]


@pytest.mark.parametrize("stream", [b"not deflated", b"\xff" * 50])
def test_a_stream_that_no_sender_writes(stream: bytes) -> None:
    link = FrameLink(SESSION, 0.0, caller=True)
    link.send(stream)
    with pytest.raises(BrokenStreamError):
        MessageChannel(SESSION, 0.0, caller=False).receive(b"".join(link.output(0.0)), 0.0)
