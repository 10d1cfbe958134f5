"""A reliable stream over a line that damages, drops and inserts bytes, such as a serial console.

    frame    ~ kind number(4) payload crc(4) ~       kind: D data, A acknowledgement
    line     control characters are escaped, or, with a lowercase kind, everything is base64

Anything between two `~` without a valid checksum is ignored: a kernel message, a damaged frame.
Data frames are numbered and retransmitted until acknowledged. This module does no I/O: the same
code serves both ends, and the caller supplies the clock. See docs/boards.md for the protocol.
"""

from __future__ import annotations

import binascii
import re
import struct
import zlib
from typing import Dict, List, Match, NamedTuple, Optional

PAYLOAD_BYTES = 1024
WINDOW = 16  # frames in flight: a board's line buffer holds them while it is busy
HANGUP = b"~HANGUP~"  # ends any listener, regardless of its session

_FLAG = b"~"
_NUMBERS = struct.Struct(">I")
_LONGEST = 4 * PAYLOAD_BYTES  # upper bound of a frame's length, with every byte escaped
# Bytes that terminals, terminal servers and QEMU's multiplexer may intercept.
_SPECIAL = re.compile(rb"[\x00-\x1f\x7d-\x7f\xff]")
_ESCAPED = re.compile(rb"\}(.)", re.DOTALL)

_FIRST_TIMEOUT = 2.0  # seconds, before the first round trip is measured
_TIMEOUTS = (0.3, 6.0)
_DEAF = 2  # timeouts without a valid frame, after which the line is assumed to be 7-bit


class Frame(NamedTuple):
    """`number` is the data frame's own, or in an acknowledgement the next one expected."""

    kind: bytes
    number: int
    payload: bytes
    text: bool


def encode(kind: bytes, number: int, payload: bytes, session: int, text: bool) -> bytes:
    """Encodes a frame for the line. The checksum is seeded with `session`, so that leftover frames
    of another session count as damaged."""
    body = _NUMBERS.pack(number) + payload
    body += _NUMBERS.pack(zlib.crc32(kind + body, session & 0xFFFFFFFF))
    if text:
        return _FLAG + kind.lower() + binascii.b2a_base64(body, newline=False) + _FLAG
    return _FLAG + kind + _SPECIAL.sub(_escape_byte, body) + _FLAG


def decode(chunk: bytes, session: int) -> Optional[Frame]:
    """Decodes the bytes between two flags; None if they are no frame or a damaged one."""
    kind, coded = chunk[:1].upper(), chunk[1:]
    text = chunk[:1] != kind
    try:
        body = binascii.a2b_base64(coded) if text else _ESCAPED.sub(_unescape_byte, coded)
    except binascii.Error:
        return None
    if kind not in (b"D", b"A") or len(body) < 2 * _NUMBERS.size:
        return None
    body, crc = body[: -_NUMBERS.size], body[-_NUMBERS.size :]
    if _NUMBERS.pack(zlib.crc32(kind + body, session & 0xFFFFFFFF)) != crc:
        return None
    return Frame(kind, _NUMBERS.unpack_from(body)[0], body[_NUMBERS.size :], text)


def _escape_byte(found: Match[bytes]) -> bytes:
    return b"}" + bytes([found[0][0] ^ 0x20])


def _unescape_byte(found: Match[bytes]) -> bytes:
    return bytes([found[1][0] ^ 0x20])


class _InFlight:
    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.order = 0  # position of its last transmission in the order of all
        self.sent_at = 0.0
        self.again = False


class FrameLink:
    """One end of the stream. `receive` consumes bytes from the line, `output` returns bytes to
    write.

    Times are seconds of any monotonic clock. `heard_at` is the time of the last valid frame. The
    two ends differ in `caller`, so that a shell's echo is not mistaken for the other end.
    """

    def __init__(self, session: int, now: float, caller: bool) -> None:
        self.heard_at = now
        self.hung_up = False
        self.resent = 0  # frames sent more than once
        self.text = False
        self._sends, self._hears = (session, ~session) if caller else (~session, session)
        self._buffer = b""
        # sending
        self._queue = bytearray()
        self._next = 0
        self._in_flight: Dict[int, _InFlight] = {}
        self._lost: List[int] = []
        self._orders = 0
        self._round_trip: Optional[float] = None
        self._timeout = _FIRST_TIMEOUT
        self._timer = now
        self._deaf = 0
        # receiving
        self._expected = 0
        self._early: Dict[int, bytes] = {}
        self._acknowledge = False

    @property
    def backlog(self) -> int:
        """Bytes sent but not yet acknowledged."""
        return len(self._queue) + sum(len(f.payload) for f in self._in_flight.values())

    def send(self, data: bytes) -> None:
        """Appends to the stream."""
        self._queue += data

    def receive(self, data: bytes, now: float) -> bytes:
        """Consumes bytes from the line; returns the in-order data completed by them."""
        *chunks, self._buffer = (self._buffer + data).split(_FLAG)
        if len(self._buffer) > _LONGEST:
            self._buffer = b""
        stream = b""
        for chunk in chunks:
            self.hung_up |= chunk == HANGUP.strip(_FLAG)
            frame = decode(chunk, self._hears) if chunk else None
            if frame is None:
                continue
            self.heard_at = now
            self.text |= frame.text  # the other end found that the line needs it
            if frame.kind == b"A":
                self._handle_ack(frame, now)
            else:
                stream += self._handle_data(frame)
        return stream

    def output(self, now: float) -> List[bytes]:
        """Returns the frames to write now: an acknowledgement, lost frames, new frames within the
        window."""
        frames = []
        if self._acknowledge:
            frames.append(self._encode_ack())
        if self._in_flight and not self._lost and now >= self._timer:
            self._timed_out()
        for number in self._lost:
            self.resent += 1
            self._in_flight[number].again = True
            frames.append(self._transmit(number, now))
        self._lost = []
        # The receiver buffers at most one window beyond its first missing frame.
        while self._queue and self._next < min(self._in_flight, default=self._next) + WINDOW:
            self._in_flight[self._next] = _InFlight(bytes(self._queue[:PAYLOAD_BYTES]))
            del self._queue[:PAYLOAD_BYTES]
            frames.append(self._transmit(self._next, now))
            self._next += 1
        return frames

    def wake_at(self) -> Optional[float]:
        """Returns when `output` will next have data without further input; None if never."""
        return self._timer if self._in_flight else None

    def _transmit(self, number: int, now: float) -> bytes:
        entry = self._in_flight[number]
        self._orders += 1
        entry.order, entry.sent_at = self._orders, now
        self._timer = now + self._timeout
        return encode(b"D", number, entry.payload, self._sends, self.text)

    def _timed_out(self) -> None:
        """Nothing arrives: resend only the oldest frame; its acknowledgement shows which others are
        missing."""
        self._lost = [min(self._in_flight)]
        self._timeout = min(1.5 * self._timeout, _TIMEOUTS[1])
        self._deaf += 1
        if self._deaf >= _DEAF and self._round_trip is None:
            self.text = True

    def _handle_ack(self, frame: Frame, now: float) -> None:
        later = int.from_bytes(frame.payload, "big")
        arrived = [
            number
            for number in self._in_flight
            if number < frame.number or later >> (number - frame.number) & 1
        ]
        if not arrived:
            return
        entries = [self._in_flight.pop(number) for number in arrived]
        newest = max(entries, key=lambda entry: entry.order)
        if not newest.again:
            known = self._round_trip
            seconds = now - newest.sent_at
            self._round_trip = seconds if known is None else 0.75 * known + 0.25 * seconds
        if self._round_trip is not None:
            self._timeout = min(max(3 * self._round_trip, _TIMEOUTS[0]), _TIMEOUTS[1])
        self._timer = now + self._timeout
        # The line preserves order: frames sent before one that arrived are lost.
        self._lost = [n for n, entry in self._in_flight.items() if entry.order < newest.order]

    def _handle_data(self, frame: Frame) -> bytes:
        self._acknowledge = True
        if self._expected <= frame.number < self._expected + WINDOW:
            self._early[frame.number] = frame.payload
        stream = b""
        while self._expected in self._early:
            stream += self._early.pop(self._expected)
            self._expected += 1
        return stream

    def _encode_ack(self) -> bytes:
        """Encodes the next number expected, and a bit mask of later frames already received."""
        self._acknowledge = False
        later = sum(1 << (number - self._expected) for number in self._early)
        bits = later.to_bytes(WINDOW // 8, "big")
        return encode(b"A", self._expected, bits, self._sends, self.text)
