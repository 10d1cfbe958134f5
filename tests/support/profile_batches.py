"""Field profile batches in the format that boards write."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from edgekit.device.runtime.agent.batch import (
    Batch,
    Environment,
    MeasuredRelease,
    OperatorSpread,
    Spread,
    batch_bytes,
)

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
