"""Seeds for hostile model files, and damage that works on the bytes of any format."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgekit.host.compiler.exporters import write_onnx, write_tflite
from edgekit.host.errors import InputError
from tests.support.export_cases import CASES
from tests.support.op_graphs import graph_of

EDGES = (
    0, 1, 2, 3, 4, 7, 8, 127, 128, 255, 256, 32767, 65535, 65536, 2**24, 2**31 - 1, 2**31,
    2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
_SIZE_LIMIT = 1 << 20
_SHIPPED = Path(__file__).parents[2] / "models"
_HUGE_VARINT = b"\xff" * 9 + b"\x7f"
_NEST = 2000  # open fields of a nested message


def seeds(suffix: str) -> list[bytes]:
    """Models of one format: a graph per case of an operator, then real models."""
    write = write_onnx if suffix == ".onnx" else write_tflite
    made = []
    for case in CASES:
        try:
            made.append(write(graph_of([case])))
        except InputError:  # the format lacks this operator
            continue
    return made + [p.read_bytes() for p in _real(suffix)]


def _real(suffix: str) -> Iterator[Path]:
    extra = os.environ.get("EDGEKIT_EXTRA_DATA")
    for folder in [_SHIPPED, *([Path(extra) / "models"] if extra else [])]:
        for path in sorted(folder.rglob(f"*{suffix}")):
            if path.stat().st_size <= _SIZE_LIMIT:
                yield path


def damaged(rng: random.Random, content: bytes, others: Sequence[bytes]) -> bytes:
    """A copy with one to four changes: bits, words, offsets, lengths, parts of another file."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        if data:
            rng.choice(_CHANGES)(rng, data, rng.choice(others))
    return bytes(data)


def _bit(rng: random.Random, data: bytearray, _: bytes) -> None:
    data[_place(rng, data)] ^= 1 << rng.randrange(8)


def _byte(rng: random.Random, data: bytearray, _: bytes) -> None:
    data[_place(rng, data)] = rng.randrange(256)


def _word(rng: random.Random, data: bytearray, _: bytes) -> None:
    size, code = rng.choice(((2, "<H"), (4, "<I"), (4, "<I"), (8, "<Q")))
    at = _place(rng, data) // size * size
    if at + size <= len(data):
        struct.pack_into(code, data, at, rng.choice(EDGES) % (1 << 8 * size))


def _offset(rng: random.Random, data: bytearray, _: bytes) -> None:
    """A word that points back, forward or to itself: shared tables, cycles, wrong vtables."""
    at = _place(rng, data) // 4 * 4
    if at + 4 <= len(data):
        struct.pack_into("<i", data, at, rng.choice((-at, rng.randint(-64, 64), -4, 4, 8)))


def _cut(rng: random.Random, data: bytearray, _: bytes) -> None:
    del data[rng.randrange(len(data)) :]


def _copy(rng: random.Random, data: bytearray, _: bytes) -> None:
    at, source, size = _place(rng, data), rng.randrange(len(data)), rng.randint(1, 64)
    data[at : at + size] = data[source : source + size]


def _splice(rng: random.Random, data: bytearray, other: bytes) -> None:
    at, source = _place(rng, data), rng.randrange(max(len(other), 1))
    data[at : at + rng.randint(0, 99)] = other[source : source + rng.randint(1, 4096)]


def _shift(rng: random.Random, data: bytearray, _: bytes) -> None:
    at = _place(rng, data)
    if rng.random() < 0.5:
        del data[at : at + rng.randint(1, 16)]
    else:
        data[at:at] = bytes(rng.randint(1, 16))


def _varint(rng: random.Random, data: bytearray, _: bytes) -> None:
    at = _place(rng, data)
    data[at : at + rng.randint(0, 2)] = _HUGE_VARINT[-rng.randint(1, 10) :]


def _nest(rng: random.Random, data: bytearray, _: bytes) -> None:
    """Length-delimited fields inside each other, of every number that the formats use."""
    tag = bytes([rng.choice((0x0A, 0x12, 0x32, 0x3A, 0x42, 0x5A))])
    data[_place(rng, data) :] = (tag + b"\xff\xff\x03") * _NEST


def _place(rng: random.Random, data: bytearray) -> int:
    """Mostly near an end of the file, where both formats keep their structure."""
    end = len(data) if rng.random() < 0.3 else min(len(data), 4096)
    at = rng.randrange(end)
    return len(data) - 1 - at if rng.random() < 0.3 else at


_CHANGES = (
    _bit, _bit, _byte, _byte, _word, _word, _word, _offset, _offset, _cut, _copy, _splice, _shift,
    _varint, _nest,
)  # fmt: skip
