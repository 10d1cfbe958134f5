"""A reliable stream over a line that damages, drops and adds bytes, such as a serial console.

    frame    ~ kind number(4) payload crc(4) ~       kind: D data, A acknowledgement
    line     control characters are escaped, or, with a small letter as kind, all is base64

What stands between two `~` and has no right checksum is not ours: a kernel message, a damaged
frame. Data is numbered and sent again until it is acknowledged. Nothing here reads or writes: the
same code serves both ends, and the clock is the caller's. The whole is told in docs/boards.md.
"""

from __future__ import annotations

import binascii
import re
import struct
import zlib
from dataclasses import dataclass
from typing import Dict, List, Match, Optional

PAYLOAD_BYTES = 1024
WINDOW = 16  # frames in flight: a board's line buffer holds them while it is busy
HANGUP = b"~HANGUP~"  # ends whoever listens, whatever its session

_FLAG = b"~"
_NUMBERS = struct.Struct(">I")
_LONGEST = 4 * PAYLOAD_BYTES  # no frame is longer, even if all of it were escaped
# What terminals, terminal servers and QEMU's multiplexer may take for themselves.
_SPECIAL = re.compile(rb"[\x00-\x1f\x7d-\x7f\xff]")
_ESCAPED = re.compile(rb"\}(.)", re.DOTALL)

_FIRST_TIMEOUT = 2.0  # seconds, before any round trip was measured
_TIMEOUTS = (0.3, 6.0)
_DEAF = 2  # timeouts without one good frame, after which the line is taken for a 7-bit one


@dataclass(frozen=True)
class Frame:
    """`number` of this data frame, or of the next one expected when it acknowledges."""

    kind: bytes
    number: int
    payload: bytes
    text: bool


def encode(kind: bytes, number: int, payload: bytes, session: int, text: bool) -> bytes:
    """The bytes of a frame on the line. The checksum starts from `session`, so that frames left
    over from another session count as damaged."""
    body = _NUMBERS.pack(number) + payload
    body += _NUMBERS.pack(zlib.crc32(kind + body, session & 0xFFFFFFFF))
    if text:
        return _FLAG + kind.lower() + binascii.b2a_base64(body, newline=False) + _FLAG
    return _FLAG + kind + _SPECIAL.sub(_escape, body) + _FLAG


def decode(chunk: bytes, session: int) -> Optional[Frame]:
    """The frame that stood between two flags; None if it is none or damaged."""
    kind, coded = chunk[:1].upper(), chunk[1:]
    text = chunk[:1] != kind
    try:
        body = binascii.a2b_base64(coded) if text else _ESCAPED.sub(_unescape, coded)
    except binascii.Error:
        return None
    if kind not in (b"D", b"A") or len(body) < 2 * _NUMBERS.size:
        return None
    body, crc = body[: -_NUMBERS.size], body[-_NUMBERS.size :]
    if _NUMBERS.pack(zlib.crc32(kind + body, session & 0xFFFFFFFF)) != crc:
        return None
    return Frame(kind, _NUMBERS.unpack_from(body)[0], body[_NUMBERS.size :], text)


def _escape(found: Match[bytes]) -> bytes:
    return b"}" + bytes([found[0][0] ^ 0x20])


def _unescape(found: Match[bytes]) -> bytes:
    return bytes([found[1][0] ^ 0x20])


@dataclass
class _InFlight:
    payload: bytes
    order: int = 0  # of its last transmission among all
    sent_at: float = 0.0
    again: bool = False


class Link:
    """One end of the stream. `receive` takes what the line brought, `output` says what to write.

    Times are seconds of any steady clock. `heard_at` is when the last good frame came. The two
    ends differ in `caller`: a shell that echoes what we send is not the other end.
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
        """Bytes that were sent but are not known to have arrived."""
        return len(self._queue) + sum(len(f.payload) for f in self._in_flight.values())

    def send(self, data: bytes) -> None:
        """Adds to the stream."""
        self._queue += data

    def receive(self, data: bytes, now: float) -> bytes:
        """What of the other end's stream is complete now, given what the line brought."""
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
            self.text |= frame.text  # the other end found out that the line needs it
            if frame.kind == b"A":
                self._acknowledged(frame, now)
            else:
                stream += self._data(frame)
        return stream

    def output(self, now: float) -> List[bytes]:
        """Frames to write now: an acknowledgement, what got lost, what the window has room for."""
        frames = []
        if self._acknowledge:
            frames.append(self._acknowledgement())
        if self._in_flight and not self._lost and now >= self._timer:
            self._timed_out()
        for number in self._lost:
            self.resent += 1
            self._in_flight[number].again = True
            frames.append(self._transmit(number, now))
        self._lost = []
        # The other end keeps no more than a window behind what it still misses.
        while self._queue and self._next < min(self._in_flight, default=self._next) + WINDOW:
            self._in_flight[self._next] = _InFlight(bytes(self._queue[:PAYLOAD_BYTES]))
            del self._queue[:PAYLOAD_BYTES]
            frames.append(self._transmit(self._next, now))
            self._next += 1
        return frames

    def wake_at(self) -> Optional[float]:
        """The time at which `output` will have something even if nothing comes in; None if
        never."""
        return self._timer if self._in_flight else None

    def _transmit(self, number: int, now: float) -> bytes:
        entry = self._in_flight[number]
        self._orders += 1
        entry.order, entry.sent_at = self._orders, now
        self._timer = now + self._timeout
        return encode(b"D", number, entry.payload, self._sends, self.text)

    def _timed_out(self) -> None:
        """Nothing comes back: only the oldest goes again, its echo tells about the others."""
        self._lost = [min(self._in_flight)]
        self._timeout = min(1.5 * self._timeout, _TIMEOUTS[1])
        self._deaf += 1
        if self._deaf >= _DEAF and self._round_trip is None:
            self.text = True

    def _acknowledged(self, frame: Frame, now: float) -> None:
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
        # A line keeps the order: what was sent before something that arrived is lost.
        self._lost = [n for n, entry in self._in_flight.items() if entry.order < newest.order]

    def _data(self, frame: Frame) -> bytes:
        self._acknowledge = True
        if self._expected <= frame.number < self._expected + WINDOW:
            self._early[frame.number] = frame.payload
        stream = b""
        while self._expected in self._early:
            stream += self._early.pop(self._expected)
            self._expected += 1
        return stream

    def _acknowledgement(self) -> bytes:
        """The next number expected, and as bits those behind it that are there already."""
        self._acknowledge = False
        later = sum(1 << (number - self._expected) for number in self._early)
        bits = later.to_bytes(WINDOW // 8, "big")
        return encode(b"A", self._expected, bits, self._sends, self.text)
