"""Runs, times and inspects the deployed release."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from edgekit.device.runtime.agent.npz import Array, npz_bytes
from edgekit.device.runtime.agent.specs import LossSpec, PlacementRequest, PlacementSpec
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.deploy.release.answers import Document
from edgekit.host.deploy.release.inference import placement_args
from edgekit.host.deploy.release.probed import known
from edgekit.host.deploy.release.runtime import QUICK_SECONDS, BoardCalls
from edgekit.host.deploy.release.session import forget, is_stale
from edgekit.host.deploy.release.types import (
    Benchmark,
    BoardStatus,
    ClockReadings,
    InstructionCount,
    ModelHotspots,
    Noise,
    OperatorTime,
    ReleaseInfo,
)
from edgekit.host.errors import BusyError, InputError

if TYPE_CHECKING:
    from edgekit.host.deploy.release.types import Arrays

_RUN_SECONDS = 600.0
_COUNT_SECONDS = 900.0  # emulators run some ten million instructions a second


def bench(
    board: BoardCalls,
    inputs: Arrays | None,
    request: PlacementRequest,
    *,
    count: int,
    warmup: int,
    seconds: int,
    variant: int,
    hotspots: bool,
) -> Benchmark:
    """Measures the latency of the deployed release over `count` runs (0: as many as fit in
    `seconds`).

    Without inputs, uses the golden input of `variant`. The release decides what `request` leaves
    open. `hotspots`: also samples its threads during runs on the golden input.
    """
    options = ["--warmup", str(warmup), "--seconds", str(seconds), *placement_args(request)]
    if variant:
        options += ["--variant", str(variant)]
    if count:
        options += ["--count", str(count)]
    folder = f"io/{secrets.token_hex(8)}"
    try:
        if inputs is not None:
            board.transport.put(_to_npz(inputs), f"{folder}/in.npz", deadline=_RUN_SECONDS)
            options += ["--input", f"{folder}/in.npz"]
        if hotspots:
            options.append("--hotspots")
        document = board.call_release("bench", *options, deadline=_RUN_SECONDS + seconds)
    finally:
        if inputs is not None:
            board.transport.remove(folder, deadline=QUICK_SECONDS)
    return _parse_benchmark(document)


def status(board: BoardCalls) -> BoardStatus:
    """Returns the running and the previous release, both checked against their SHA-256.

    If the running release is damaged, the board rolls back to the previous one if that is intact.
    """
    return _parse_status(board.call("status", deadline=_RUN_SECONDS))


def verify(board: BoardCalls) -> BoardStatus:
    """Returns the status if all files are intact.

    Raises RolledBackError if the board rolled back from a damaged release, TransferError if it
    could not or the previous release is damaged, InputError if nothing is running.
    """
    return _parse_status(board.call("verify", deadline=_RUN_SECONDS))


def _parse_status(found: Document) -> BoardStatus:
    return BoardStatus(
        _parse_info(found["current"]),
        _parse_info(found["previous"]),
        found["interrupted"],
        found["deploying"],
        found["last_failure"],
        {
            name: _parse_status({**other, "named": {}})  # named models do not nest
            for name, other in found["named"].items()
        },
    )


def rollback(board: BoardCalls) -> BoardStatus:
    """Rolls back to the previous release, after ending a stale deploy of this host.

    Raises InputError if there is none, TransferError if it is damaged, BusyError if a deploy is in
    progress.
    """
    _call_alone(board, "rollback")
    return status(board)


def remove(board: BoardCalls) -> tuple[str, ...]:
    """Removes a model from the board, but no others; returns its release ids, current first.

    Ends a stale deploy of this host first. Raises InputError if there is no model of that name,
    BusyError if a process on the board is running it or a deploy is in progress.
    """
    return tuple(_call_alone(board, "remove")["releases"])


def _call_alone(board: BoardCalls, command: str) -> Document:
    """Runs a command that changes releases, after ending a stale deploy of this host."""
    try:
        return board.call(command, deadline=_RUN_SECONDS)
    except BusyError as error:
        if not is_stale(error.holder):
            raise
        board.call("leave", "--session", error.holder)
        forget(error.holder)
        return board.call(command, deadline=_RUN_SECONDS)


def _to_npz(inputs: Arrays) -> bytes:
    try:
        import numpy as np

        return npz_bytes({name: Array.of(np.asarray(value)) for name, value in inputs.items()})
    except DeviceInputError as error:
        raise InputError(str(error)) from None


def _parse_info(found: Document | None) -> ReleaseInfo | None:
    if found is None:
        return None
    shapes = tuple(_parse_shapes(variant) for variant in found["shapes"])
    placed, lost = found["placement"], found["loss"]
    spec = None if placed is None else PlacementSpec(**known(PlacementSpec, placed))
    loss = None if lost is None else LossSpec(**known(LossSpec, lost))
    signatures = tuple(found.get("signatures", ()))
    more = {"shapes": shapes, "placement": spec, "loss": loss, "signatures": signatures}
    return ReleaseInfo(**known(ReleaseInfo, found) | more)


def _parse_shapes(found: Document) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in found.items()}


def _parse_benchmark(document: Document) -> Benchmark:
    latency = document["latency_ms"]
    conditions = document["conditions"]
    return Benchmark(
        release=document["release"],
        model=document["model"],
        threads=document["threads"],
        median_ms=latency["median"],
        p10_ms=latency["p10"],
        p90_ms=latency["p90"],
        runs=latency["n"],
        operators=tuple(OperatorTime(**known(OperatorTime, row)) for row in document["operators"]),
        arena_bytes=document["arena_bytes"],
        weights_bytes=document["weights_bytes"],
        before=ClockReadings(**known(ClockReadings, conditions["before"])),
        after=ClockReadings(**known(ClockReadings, conditions["after"])),
        load_ms=document["load_ms"],
        shapes=_parse_shapes(document["shapes"]),
        signature=document.get("signature", ""),
        noise=Noise(**document["noise"]),
        cluster=document["placement"]["cluster"],
        placement_note=document["placement"]["note"],
        hotspots=_parse_hotspots(document["hotspots"]) if "hotspots" in document else None,
    )


def _parse_hotspots(found: Document) -> ModelHotspots:
    from edgekit.device.runtime.agent.hotspots import (
        HotFunction,
        HotInstruction,
        ThreadHotspots,
        ThreadTime,
    )
    from edgekit.device.runtime.agent.threads import OtherProgram

    seen = ThreadHotspots(
        sampler=found["sampler"],
        threads=tuple(ThreadTime(**known(ThreadTime, each)) for each in found["threads"]),
        functions=tuple(HotFunction(**known(HotFunction, each)) for each in found["functions"]),
        instructions=tuple(
            HotInstruction(**known(HotInstruction, each)) for each in found["instructions"]
        ),
        others=tuple(OtherProgram(**known(OtherProgram, each)) for each in found["others"]),
        kernel=found["kernel"],
        minor_faults=found["minor_faults"],
        major_faults=found["major_faults"],
        waiting=found["waiting"],
        missing=tuple(found["missing"]),
    )
    return ModelHotspots(seen, found["memory_bytes_per_second"])


def count_instructions(board: BoardCalls, *, repeats: int = 5) -> InstructionCount:
    """Counts on the board; a virtual board must have been started with
    `BoardOptions(counting=True)`.

    Raises IncompatibleError if the board has no instruction counter.
    """
    found = board.call_release("count", "--repeats", str(repeats), deadline=_COUNT_SECONDS)
    return InstructionCount(
        release=found["release"],
        model=found["model"],
        per_inference=found["per_inference"],
        user_only=found["user_only"],
        samples=tuple(found["samples"]),
    )
