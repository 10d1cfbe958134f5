"""A batch of a field profile: one model's measurements over some minutes, and their file format.

    file  one line: magic, size of the body, SHA-256 of the body; then the body, one line of JSON

Only the fields below leave the board: no inputs, outputs, environment variables or paths.
Concatenated files form one stream; this is how they are transferred.
"""

from __future__ import annotations

import json
import re
from typing import Iterator, NamedTuple, Optional, Tuple

from edgekit.device.runtime.agent.strict import printable, short
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.record import Record, asdict

SCHEMA = "edgekit.profile.batch/1"
FIELD_SCHEMA = "edgekit.profile.batch/2"  # with `field`; hosts that know only /1 keep it aside
MOST_BATCH_BYTES = 1 << 20

_MAGIC = b"EKP1"
_HEAD = re.compile(rb"EKP1 (0|[1-9][0-9]{0,7}) ([0-9a-f]{64})\n")
_LONGEST_HEAD = 80
_LONGEST_TEXT = 512


class MeasuredRelease(Record):
    """The measured release on this board, and its run configuration."""

    release: str
    model: str
    model_sha256: str
    profile: str
    kit: str
    variant: int
    threads: int


class Spread(NamedTuple):
    """Statistics of the samples, in nanoseconds."""

    samples: int
    median_ns: int
    p90_ns: int
    max_ns: int


class OperatorSpread(NamedTuple):
    """One operator, in execution order."""

    name: str
    op: str
    kernel: str
    samples: int
    median_ns: int
    p90_ns: int
    max_ns: int


class RangeSketch(NamedTuple):
    """The values of a tensor of the float model: the least and the largest finite one, the number
    of others, the range that the release has for it (None: not comparable), and a sketch.py."""

    name: str
    low: float
    high: float
    odd: int
    from_low: Optional[float]
    to_high: Optional[float]
    sketch: str


class FieldReport(Record):
    """Inferences repeated by the float model with this SHA-256: how many agreed by `measure`, and
    how many had a difference of up to each of NOISES; see shadow.py."""

    float_sha256: str
    measure: str
    agreed: int
    noises: Tuple[int, ...]
    ranges: Tuple[RangeSketch, ...]


class Environment(Record):
    """Conditions that affect the model's speed; None where the kernel does not report them.
    `cluster` is the core type the process last ran on, `others` the number of cores kept busy by
    other programs."""

    cluster: str
    governor: Optional[str]
    frequency_mhz: Optional[float]
    temperature_c: Optional[float]
    throttled: Optional[bool]
    others: Optional[float]
    load: Optional[float]
    available_bytes: Optional[int]
    resident_bytes: Optional[int]


class Batch(Record):
    """`began_ns` and `ended_ns` count from the boot identified by `boot`; `clock` is the board's
    wall clock in seconds since 1970. `lost` counts earlier batches that could not be written. The
    spool adds its own name, the sequence number and its drop counts. With a `field` report, `whole`
    has the times of the float model, and there are no operators."""

    uuid: str
    boot: str
    began_ns: int
    ended_ns: int
    clock: float
    lost: int
    subject: MeasuredRelease
    inferences: int
    every: float
    whole: Spread
    operators: Tuple[OperatorSpread, ...]
    environment: Environment
    field: Optional[FieldReport] = None


def batch_bytes(batch: Batch, spool: str, sequence: int, dropped: int, quarantined: int) -> bytes:
    """Serializes a batch as number `sequence` of the spool `spool`."""
    fields = asdict(batch)
    if batch.field is None:
        del fields["field"]
    document = {
        "schema": SCHEMA if batch.field is None else FIELD_SCHEMA,
        "spool": spool,
        "sequence": sequence,
        "dropped": dropped,
        "quarantined": quarantined,
        **fields,
    }
    body = json.dumps(_sanitize_text(document), separators=(",", ":"), allow_nan=False).encode()
    return framed(body)


def framed(body: bytes) -> bytes:
    """Adds the header line to a body."""
    return b"%s %d %s\n%s" % (_MAGIC, len(body), _sha256_hex(body), body)


def bodies(stream: bytes) -> Iterator[bytes]:
    """Yields the bodies of the files in a stream; InputError at the first malformed or damaged
    file."""
    at = 0
    while at < len(stream):
        head = _HEAD.match(stream, at, at + _LONGEST_HEAD)
        if head is None:
            raise _batch_error("a batch header", repr(stream[at : at + 16]))
        size = int(head[1])
        at = head.end() + size
        body = stream[head.end() : at]
        if size > MOST_BATCH_BYTES or len(body) < size:
            raise _batch_error(f"{size} bytes, {MOST_BATCH_BYTES} at most", len(body))
        if _sha256_hex(body) != head[2]:
            raise _batch_error("the SHA-256 of its header", "another")
        yield body


def check_file(data: bytes) -> None:
    """InputError unless `data` is exactly one intact batch."""
    found = sum(1 for _ in bodies(data))
    if found != 1:
        raise _batch_error("one batch", found)


def _sanitize_text(value: object) -> object:
    """Makes all text printable and short, since names come from kernels and models."""
    if isinstance(value, str):
        return printable(value[:_LONGEST_TEXT])
    if isinstance(value, dict):
        return {key: _sanitize_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_sanitize_text(item) for item in value]
    return value


def _batch_error(expected: str, found: object) -> InputError:
    return InputError(f"profile batch: expected {expected}, found {short(found)}")


def _sha256_hex(data: bytes) -> bytes:
    """Returns the SHA-256 as hex digits."""
    import hashlib  # loads OpenSSL: deferred until there is something to write

    return hashlib.sha256(data).hexdigest().encode()
