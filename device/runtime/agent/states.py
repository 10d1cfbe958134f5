"""The states of a deploy as a table: each one's action, its place, and its successors."""

from __future__ import annotations

from typing import Dict, Tuple

from edgekit.device.runtime.record import Record

COMMITTED = "committed"
UNCHANGED = "unchanged"
REFUSED = "refused"
ROLLED_BACK = "rolled back"
TERMINAL = (COMMITTED, UNCHANGED, REFUSED, ROLLED_BACK)


class DeployState(Record):
    """One row: run `does` on `where`; go to `success` or `failure` (with that exit code)."""

    name: str
    where: str
    does: str
    success: str
    failure: str
    exit_code: int
    deadline_seconds: float


STATES: Tuple[DeployState, ...] = (
    DeployState(
        "probe",
        "board",
        "read machine, CPU features, memory, disk and clock",
        "plan",
        REFUSED,
        5,
        60,
    ),
    DeployState(
        "plan",
        "board",
        "verify the manifest's signature, check that the release fits, list the files to send",
        "transfer",
        REFUSED,
        5,
        120,
    ),
    DeployState("transfer", "host", "send the files that are missing", "verify", REFUSED, 6, 900),
    DeployState(
        "verify",
        "board",
        "check the signature, and size and SHA-256 of every file",
        "extract",
        REFUSED,
        6,
        120,
    ),
    DeployState(
        "extract",
        "board",
        "write a new release directory, fsync, rename",
        "activate",
        REFUSED,
        6,
        300,
    ),
    DeployState(
        "activate",
        "board",
        "record the running release, swap the link `current`",
        "health",
        ROLLED_BACK,
        7,
        30,
    ),
    DeployState(
        "health",
        "board",
        "run the golden input and compare the outputs",
        "commit",
        ROLLED_BACK,
        7,
        120,
    ),
    DeployState(
        "commit",
        "board",
        "delete that record, remove releases that no link points to",
        COMMITTED,
        ROLLED_BACK,
        7,
        60,
    ),
)

BY_NAME: Dict[str, DeployState] = {state.name: state for state in STATES}
ON_BOARD: Tuple[str, ...] = ("verify", "extract", "activate", "health", "commit")
