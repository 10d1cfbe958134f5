"""Messages over a Link: kind, length, payload; each direction is one deflated stream."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any, Dict, List, NamedTuple, Optional

from edgekit.device.runtime.agent.frames import FrameLink

CHUNK_BYTES = 16 << 10  # of a file or output per message

# host to board
RUN, TALK, KILL, PUT, GET, REMOVE, PING = b"r", b"t", b"k", b"p", b"g", b"m", b"."
# board to host
OUT, ERR, EXIT, READY, FAILED = b"o", b"e", b"x", b"y", b"f"
# both
DATA = b"d"

_HEAD = struct.Struct(">cI")
_MOST = 1 << 20  # a larger message is rejected, to bound memory


class BrokenStreamError(Exception):
    """The stream contains data that no valid sender writes."""


class Message(NamedTuple):
    kind: bytes
    payload: bytes

    def document(self) -> Dict[str, Any]:
        """The decoded payload of a JSON message."""
        found: Dict[str, Any] = json.loads(self.payload)
        return found


class MessageChannel:
    """One end: messages in, messages out; the caller moves the bytes of `link`."""

    def __init__(self, session: int, now: float, caller: bool) -> None:
        self.link = FrameLink(session, now, caller)
        self._deflate = zlib.compressobj(6)
        self._inflate = zlib.decompressobj()
        self._buffer = bytearray()

    def send(
        self, kind: bytes, payload: bytes = b"", document: Optional[Dict[str, Any]] = None
    ) -> None:
        """Queues a message; `document` is sent as JSON in place of `payload`."""
        if document is not None:
            payload = json.dumps(document).encode()
        data = self._deflate.compress(_HEAD.pack(kind, len(payload)) + payload)
        self.link.send(data + self._deflate.flush(zlib.Z_SYNC_FLUSH))

    def receive(self, data: bytes, now: float) -> List[Message]:
        """Returns the messages that are now complete. Raises BrokenStreamError."""
        try:
            self._buffer += self._inflate.decompress(self.link.receive(data, now))
        except zlib.error as error:
            raise BrokenStreamError(str(error)) from None
        messages = []
        while len(self._buffer) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._buffer)
            if length > _MOST:
                raise BrokenStreamError(f"a message of {length} bytes")
            end = _HEAD.size + length
            if len(self._buffer) < end:
                break
            messages.append(Message(kind, bytes(self._buffer[_HEAD.size : end])))
            del self._buffer[:end]
        return messages
