"""`edgekit estimate` of a Linux program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.host.simulator.run import SimulatorRun
    from edgekit.host.simulator.target import SimulatedCore

FETCH = "fetch"


def estimate_program(
    what: list[str],
    target: SimulatedCore,
    root: str | None,
    whole: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Runs the program with its arguments under emulation and prints the cost of each region."""
    from edgekit.host.cli.output import emit, note
    from edgekit.host.simulator.emulator import find_emulator
    from edgekit.host.simulator.run import SimulatorJob, run_job

    job = SimulatorJob(tuple(what), _resolve_sysroot(root, target), whole=whole, seconds=timeout)
    run = run_job(find_emulator(target.board.arch, note), target, job)
    if as_json:
        emit(_program_document(what, target, run))
    else:
        _show_program(target, run)


def say_unmodelled(count: int) -> None:
    """Warns if an estimate contains instructions that the core model lacks."""
    from edgekit.host.cli.output import warn

    if count:
        warn(f"{count} instructions are not modeled; each was counted as a simple one")


def _resolve_sysroot(given: str | None, target: SimulatedCore) -> Path | None:
    if given != FETCH:
        return Path(given) if given else None
    from edgekit.host.cli.output import note
    from edgekit.host.simulator.root import system_root

    return system_root(target.board.arch, note).folder


def _program_document(what: list[str], target: SimulatedCore, run: SimulatorRun) -> dict[str, Any]:
    """The document edgekit.estimate.program/1."""
    from edgekit.host.simulator.report import cost_document, error_document
    from edgekit.host.simulator.run import SimulatedCost

    def timed(cost: SimulatedCost) -> dict[str, Any]:
        return {"estimated_ms": target.milliseconds(cost.cycles), **cost_document(cost)}

    return {
        "schema": "edgekit.estimate.program/1",
        "board": target.board.name,
        "core": target.core.name,
        "clock_mhz": target.core.clock_mhz,
        "program": what,
        "estimated": True,
        **error_document(target.proof("float", 1)),
        "unmodelled_instructions": run.unmodelled,
        "regions": [
            {
                **timed(region.cost),
                "laps": [timed(lap) for lap in region.laps],
                "threads": [timed(each) for each in region.threads],
            }
            for region in run.regions
        ],
    }


def _show_program(target: SimulatedCore, run: SimulatorRun) -> None:
    from edgekit.host.cli.output import milliseconds, table
    from edgekit.host.simulator.report import bound_text, proof_text
    from edgekit.host.simulator.run import SimulatedCost

    print(f"core     {target.core.name} at {target.core.clock_mhz:g} MHz on {target.board.name}")
    print(f"error    {proof_text(target.proof('float', 1))}")
    say_unmodelled(run.unmodelled)

    def row(name: str, cost: SimulatedCost) -> tuple[str, ...]:
        time = milliseconds(target.milliseconds(cost.cycles))
        return name, time, str(cost.cycles), str(cost.instructions), bound_text(cost)

    rows = []
    for number, region in enumerate(run.regions, 1):
        rows.append(row(f"region {number}", region.cost))
        rows += [row(f"  lap {i}", lap) for i, lap in enumerate(region.laps, 1)]
    table(("", "estimated ms", "cycles", "instructions", "bound by"), rows)
