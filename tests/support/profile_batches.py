"""Field profile batches in the format that boards write."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.agent.batch import (
    Batch,
    Environment,
    FieldReport,
    MeasuredRelease,
    OperatorSpread,
    RangeSketch,
    Spread,
    batch_bytes,
)
from edgekit.device.runtime.agent.sketch import BINS, sketch_of, sketch_text

SPOOL = "f" * 32


def batch(number: int, operators: int = 2, profile: str = "a57") -> Batch:
    """A batch whose UUID and times are derived from `number`."""
    rows = (
        OperatorSpread(f"op{i}", "Add", "add", 1, number, number, number) for i in range(operators)
    )
    return Batch(
        uuid=f"{number:032x}",
        boot="b" * 32,
        began_ns=number,
        ended_ns=number + 1,
        clock=0.0,
        lost=0,
        subject=MeasuredRelease("0" * 16, "tiny", "1" * 64, profile, "1.0", 0, 1),
        inferences=10,
        every=1.0,
        whole=Spread(1, 3, 3, 3),
        operators=tuple(rows),
        environment=Environment("", None, None, None, None, None, None, None, None),
    )


def bins_of(values: NDArray[np.float32]) -> list[int]:
    """What a board counts before it sketches a tensor."""
    found: list[int] = np.bincount(
        values.reshape(-1).view(np.uint32) >> 22, minlength=BINS
    ).tolist()
    return found


def field_batch(
    number: int,
    samples: int = 10,
    agreed: int = 10,
    release: str = "0" * 16,
    float_sha256: str = "2" * 64,
    **tensors: NDArray[np.float32],
) -> bytes:
    """The file of a batch with a field report; tensors have a range of -1 to 1 in the release."""
    ranges = tuple(
        RangeSketch(
            name, float(x.min()), float(x.max()), 0, -1.0, 1.0, sketch_text(sketch_of(bins_of(x)))
        )
        for name, x in tensors.items()
    )
    noises = (agreed, 0, 0, 0, samples - agreed)
    made = batch(number, 0)
    made = replace(
        made,
        subject=replace(made.subject, release=release),
        whole=Spread(samples, 3, 3, 3),
        field=FieldReport(float_sha256, "difference", agreed, noises, ranges),
    )
    return batch_bytes(made, SPOOL, number, 0, 0)


def stream(*numbers: int, operators: int = 2, profile: str = "a57") -> bytes:
    """The files of some batches, concatenated."""
    return b"".join(batch_bytes(batch(n, operators, profile), SPOOL, n, 0, 0) for n in numbers)


def named(number: int, name: str) -> bytes:
    """The file of a batch with one operator of that name."""
    found = batch(number, 1)
    row = found.operators[0]._replace(name=name)
    return batch_bytes(replace(found, operators=(row,)), SPOOL, number, 0, 0)


def headed(body: bytes) -> bytes:
    """A batch file with an arbitrary body."""
    return b"EKP1 %d %s\n%s" % (len(body), hashlib.sha256(body).hexdigest().encode(), body)
