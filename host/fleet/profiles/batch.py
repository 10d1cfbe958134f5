"""Strict decoding of profile batches sent by boards; invalid data never enters the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from edgekit.device.runtime.agent.batch import FIELD_SCHEMA, SCHEMA
from edgekit.device.runtime.agent.shadow import NOISES
from edgekit.device.runtime.agent.shadow_spec import MOST_WATCHED
from edgekit.device.runtime.agent.sketch import TEXT_CHARACTERS, parse_sketch
from edgekit.device.runtime.arrays.calls import KINDS, TRIAL, Call, GemmCall, parse_call
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.common.text import printable
from edgekit.host.errors import InputError

_Text = Annotated[str, Meta(max_length=512)]
_Hex32 = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Value = Annotated[float, Meta(ge=-3.5e38, le=3.5e38)]  # of an f32
_Number = Annotated[float, Meta(ge=-1e15, le=1e15)]
_MOST_OPERATORS = 65536
_MOST_RATE = 4096.0  # multiply-adds per ns and thread: bytes in AMX's tiles at 4 GHz


class MeasuredRelease(Struct, forbid_unknown_fields=True, frozen=True):
    release: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    model: _Text
    model_sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    profile: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")]
    kit: _Text
    variant: _Count
    threads: _Count


class Spread(Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Statistics of the samples, in nanoseconds."""

    samples: _Count
    median_ns: _Count
    p90_ns: _Count
    max_ns: _Count


class OperatorSpread(Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    name: _Text
    op: _Text
    kernel: _Text
    samples: _Count
    median_ns: _Count
    p90_ns: _Count
    max_ns: _Count


class RangeSketch(Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    name: _Text
    low: _Value
    high: _Value
    odd: _Count
    from_low: _Value | None
    to_high: _Value | None
    sketch: Annotated[str, Meta(min_length=TEXT_CHARACTERS, max_length=TEXT_CHARACTERS)]


class FieldReport(Struct, forbid_unknown_fields=True, frozen=True):
    float_sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    measure: Literal["class", "difference"]
    agreed: _Count
    noises: Annotated[
        tuple[_Count, ...], Meta(min_length=len(NOISES) + 1, max_length=len(NOISES) + 1)
    ]
    ranges: Annotated[tuple[RangeSketch, ...], Meta(max_length=MOST_WATCHED)]


class Environment(Struct, forbid_unknown_fields=True, frozen=True):
    cluster: _Text
    governor: _Text | None
    frequency_mhz: _Number | None
    temperature_c: _Number | None
    throttled: bool | None
    others: _Number | None
    load: _Number | None
    available_bytes: _Count | None
    resident_bytes: _Count | None


class Batch(Struct, forbid_unknown_fields=True, frozen=True):
    """A batch as written by edgekit.device.runtime.agent.batch, which documents the fields."""

    schema: Annotated[str, Meta(pattern=f"^({SCHEMA}|{FIELD_SCHEMA})$")]
    spool: _Hex32
    sequence: _Count
    dropped: _Count
    quarantined: _Count
    uuid: _Hex32
    boot: Annotated[str, Meta(pattern="^([0-9a-f]{32})?$")]
    began_ns: _Count
    ended_ns: _Count
    clock: _Number
    lost: _Count
    subject: MeasuredRelease
    inferences: _Count
    every: _Number
    whole: Spread
    operators: Annotated[tuple[OperatorSpread, ...], Meta(max_length=_MOST_OPERATORS)]
    environment: Environment
    field: FieldReport | None = None

    @property
    def rows(self) -> int:
        """Rows of this batch in the store."""
        return len(self.operators) + (1 + len(self.field.ranges) if self.field else 0)


class Arrival(Struct, frozen=True):
    """A batch with its board and arrival time: seconds since 1970, by the host's clock."""

    board: str
    received: float
    batch: Batch


class _Head(Struct):
    schema: str


_BATCH = msgspec.json.Decoder(Batch)
_HEAD = msgspec.json.Decoder(_Head)


def decode_batch(body: bytes) -> Batch:
    """Decodes one batch; InputError states what was expected and found."""
    try:
        found = _BATCH.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(_decode_error_text(body, str(error))) from None
    odd = next((text for text in _text_fields(found) if not text.isprintable()), None)
    if odd is not None:
        raise InputError(f"profile batch: expected printable text, found {odd!r}")
    _check_field(found)
    for operator in found.operators:
        if operator.op.removesuffix(TRIAL) in KINDS:
            _check_call(operator, found.subject.threads)
    return found


def _check_field(batch: Batch) -> None:
    """InputError unless a field report is that of a board."""
    field, samples = batch.field, batch.whole.samples
    if (field is not None) != (batch.schema == FIELD_SCHEMA):
        found = "one" if field else "none"
        raise InputError(
            f"profile batch: expected a field report in {FIELD_SCHEMA} alone, found {found} in "
            f"{batch.schema}"
        )
    if field is None:
        return
    if batch.operators:
        raise InputError(
            f"profile batch: expected a field report, found {len(batch.operators)} operators too"
        )
    if sum(field.noises) != samples or field.agreed > samples:
        raise InputError(
            f"profile batch: expected results of {samples} inferences, found {sum(field.noises)}, "
            f"{field.agreed} of which agree"
        )
    for each in field.ranges:
        if each.low > each.high:
            raise InputError(
                f"profile batch: {each.name}: expected a range, found {each.low:g} to {each.high:g}"
            )
        try:
            parse_sketch(each.sketch)
        except DeviceInputError as error:
            raise InputError(f"profile batch: {each.name}: {error}") from None
    if len({each.name for each in field.ranges}) != len(field.ranges):
        raise InputError("profile batch: expected each tensor once, found one twice")


def _check_call(found: OperatorSpread, threads: int) -> None:
    """InputError unless a program could have computed this product in this time."""
    try:
        call = parse_call(Call(found.op.removesuffix(TRIAL), found.name, found.kernel))
    except DeviceInputError as error:
        raise InputError(f"profile batch: {error}") from None
    if isinstance(call, GemmCall):
        least = call.m * call.k * call.n / (_MOST_RATE * max(threads, 1))
        if found.median_ns < least:
            raise InputError(
                f"profile batch: {found.name}: expected at least {least:.0f} ns, "
                f"found {found.median_ns}"
            )


def _text_fields(batch: Batch) -> Iterator[str]:
    for value in msgspec.structs.asdict(batch.subject).values():
        yield value if isinstance(value, str) else ""
    yield batch.environment.cluster
    yield batch.environment.governor or ""
    for operator in batch.operators:
        yield operator.name
        yield operator.op
        yield operator.kernel
    for each in batch.field.ranges if batch.field else ():
        yield each.name


def _decode_error_text(body: bytes, error: str) -> str:
    try:
        schema = _HEAD.decode(body).schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        schema = SCHEMA
    if schema not in (SCHEMA, FIELD_SCHEMA):
        return (
            f"profile batch: expected {SCHEMA}, found {printable(schema, 80)}; "
            "use the edgekit that deployed there, or a newer one"
        )
    return f"profile batch: expected {schema}, found one that does not fit: {printable(error, 200)}"
