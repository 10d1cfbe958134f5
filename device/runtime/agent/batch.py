"""A batch of a field profile: what one model did for some minutes, as it lies in a file.

    file  one line: magic, bytes of the body, SHA-256 of the body; the body, JSON in one line

Only what is a field here leaves the board: no inputs, no outputs, no environment and no paths.
Several files one after the other are read as one stream, which is how they travel.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Iterator, NamedTuple, Optional, Tuple

from edgekit.device.runtime.agent.strict import short
from edgekit.device.runtime.errors import InputError

SCHEMA = "edgekit.profile.batch/1"
MOST_BATCH_BYTES = 1 << 20

_MAGIC = b"EKP1"
_HEAD = re.compile(rb"EKP1 (0|[1-9][0-9]{0,7}) ([0-9a-f]{64})\n")
_LONGEST_HEAD = 80
_LONGEST_TEXT = 512


@dataclass(frozen=True)
class Subject:
    """What was measured: a release on this board, and how it ran."""

    release: str
    model: str
    model_sha256: str
    profile: str
    kit: str
    variant: int
    threads: int


class Spread(NamedTuple):
    """Nanoseconds of the samples."""

    samples: int
    median_ns: int
    p90_ns: int
    max_ns: int


class OperatorSpread(NamedTuple):
    """One operator, in running order."""

    name: str
    op: str
    kernel: str
    samples: int
    median_ns: int
    p90_ns: int
    max_ns: int


@dataclass(frozen=True)
class Surroundings:
    """What decides how fast the model ran; None where the kernel does not tell. `cluster` is the
    kind of core that the process was last on, `others` how many cores other programs kept busy."""

    cluster: str
    governor: Optional[str]
    frequency_mhz: Optional[float]
    temperature_c: Optional[float]
    throttled: Optional[bool]
    others: Optional[float]
    load: Optional[float]
    available_bytes: Optional[int]
    resident_bytes: Optional[int]


@dataclass(frozen=True)
class Batch:
    """`began_ns` and `ended_ns` count from the start of the board, whose identity is `boot`;
    `clock` is what it believed the time to be, in seconds since 1970. `lost` batches before this
    one could not be written. The spool adds itself, the sequence and what it dropped."""

    uuid: str
    boot: str
    began_ns: int
    ended_ns: int
    clock: float
    lost: int
    subject: Subject
    inferences: int
    every: float
    whole: Spread
    operators: Tuple[OperatorSpread, ...]
    surroundings: Surroundings


def batch_bytes(batch: Batch, spool: str, sequence: int, dropped: int, quarantined: int) -> bytes:
    """The file of a batch: number `sequence` of the spool of that name."""
    document = {
        "schema": SCHEMA,
        "spool": spool,
        "sequence": sequence,
        "dropped": dropped,
        "quarantined": quarantined,
        **{k: v for k, v in asdict(batch).items() if k not in ("whole", "operators")},
        "whole": list(batch.whole),
        "operators": [list(row) for row in batch.operators],
    }
    body = json.dumps(_bounded(document), separators=(",", ":"), allow_nan=False).encode()
    return framed(body)


def framed(body: bytes) -> bytes:
    """The file of a body."""
    return b"%s %d %s\n%s" % (_MAGIC, len(body), _sha256(body), body)


def bodies(stream: bytes) -> Iterator[bytes]:
    """The bodies of the files in a stream; InputError at the first byte that is not of a file, or
    at a body that is not what was written."""
    at = 0
    while at < len(stream):
        head = _HEAD.match(stream, at, at + _LONGEST_HEAD)
        if head is None:
            raise _bad("the head of a batch", repr(stream[at : at + 16]))
        size = int(head[1])
        at = head.end() + size
        body = stream[head.end() : at]
        if size > MOST_BATCH_BYTES or len(body) < size:
            raise _bad(f"{size} bytes, {MOST_BATCH_BYTES} at most", len(body))
        if _sha256(body) != head[2]:
            raise _bad("the SHA-256 of its head", "another")
        yield body


def check_file(data: bytes) -> None:
    """InputError unless `data` is one whole batch."""
    found = sum(1 for _ in bodies(data))
    if found != 1:
        raise _bad("one batch", found)


def _bounded(value: object) -> object:
    """The same with all text printable and short, whatever a kernel or a model calls things."""
    if isinstance(value, str):
        return "".join(c if c.isprintable() else "?" for c in value[:_LONGEST_TEXT])
    if isinstance(value, dict):
        return {key: _bounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_bounded(item) for item in value]
    return value


def _bad(expected: str, found: object) -> InputError:
    return InputError(f"profile batch: expected {expected}, found {short(found)}")


def _sha256(data: bytes) -> bytes:
    """As hex digits."""
    import hashlib  # loads OpenSSL: not before there is something to write

    return hashlib.sha256(data).hexdigest().encode()
