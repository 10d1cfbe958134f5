"""Messages of a session between host and board: a header, a JSON document, the arrays' bytes.

    message  magic(4) length of the document(4) length of the data(8) document data

Both ends limit a message's size before reading it, and treat the other as untrusted: a message that
is malformed, too long or inconsistent is an InputError.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Callable, Dict, Mapping, Tuple

from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.strict import bad, each, integer, no_constant, short, text
from edgekit.device.runtime.dtypes import BY_NAME, count
from edgekit.device.runtime.errors import InputError

MAGIC = b"EKS1"
HEAD_BYTES = 16
MOST_DOCUMENT = 8 << 20  # a release with many variants describes each

Document = Dict[str, Any]
Read = Callable[[int], bytes]  # returns exactly that many bytes

_HEAD = struct.Struct(">4sIQ")
_MOST_RANK = 32


def pack(document: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Serializes one message."""
    listed = [[name, array.dtype, list(array.shape)] for name, array in arrays.items()]
    body = json.dumps({**document, "arrays": listed}).encode()
    data = [array.data for array in arrays.values()]
    return b"".join((_HEAD.pack(MAGIC, len(body), sum(map(len, data))), body, *data))


def receive(read: Read, most_data: int, head: bytes = b"") -> Tuple[Document, Dict[str, Array]]:
    """Reads the next message, whose first bytes `head` were already read; returns document and
    arrays."""
    magic, length, size = _HEAD.unpack(head or read(HEAD_BYTES))
    if magic != MAGIC:
        raise InputError(f"expected a message of a session, found {short(magic)}")
    if length > MOST_DOCUMENT or size > most_data:
        raise InputError(
            f"expected a message of at most {MOST_DOCUMENT} and {most_data} bytes, "
            f"found {length} and {size}"
        )
    document = _parse_document(read(length))
    return document, _parse_arrays(document.pop("arrays", None), read(size))


def _parse_document(body: bytes) -> Document:
    try:
        found = json.loads(body, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise bad("message", "JSON", error) from None
    if not isinstance(found, dict):
        raise bad("message", "an object", type(found).__name__)
    return found


def _parse_arrays(listed: object, data: bytes) -> Dict[str, Array]:
    arrays, at = {}, 0
    for name, dtype, shape in each(listed, "arrays", _parse_entry):
        end = at + BY_NAME[dtype].bytes * count(shape)
        arrays[name] = Array(dtype, shape, data[at:end])
        at = end
    if at != len(data):
        raise bad("arrays", f"{at} bytes", len(data))
    return arrays


def _parse_entry(raw: object, where: str) -> Tuple[str, str, Tuple[int, ...]]:
    if not isinstance(raw, list) or len(raw) != 3:
        raise bad(where, "a name, a type and a shape", raw)
    name, dtype, shape = text(raw[0], where), text(raw[1], where), each(raw[2], where, integer)
    if dtype not in BY_NAME or len(shape) > _MOST_RANK:
        raise bad(where, f"a known type and at most {_MOST_RANK} axes", raw)
    return name, dtype, shape
