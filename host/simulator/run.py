"""Runs a program under qemu-user with our plugin, and returns its regions' costs per core."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit.host.common.text import printable
from edgekit.host.errors import InputError
from edgekit.host.simulator.core_text import core_text
from edgekit.host.simulator.elf import check_program
from edgekit.host.simulator.emulator import Emulator, plugin_of, spelled
from edgekit.host.simulator.target import SimulatedCore
from edgekit.kb.targets.core import Core

_SCHEMA = "edgekit.boardtime.run/1"
_TAIL = 300  # characters of a program's last output
_TRACE_SECONDS = 120.0
_DOCS = "docs/estimates.md"
# Reserves the guest's address space. Otherwise guest addresses, and with them cache sets, would
# depend on where this kernel maps QEMU. QEMU's 32-bit emulator always reserves.
GUEST_BYTES = 1 << 36


@dataclass(frozen=True)
class SimulatedCost:
    """The cost of a stretch of a program: `bound` attributes its cycles to causes and sums up to
    them."""

    cycles: int
    instructions: int
    bound: Mapping[str, int]


@dataclass(frozen=True)
class Region:
    """The code between two marks, its laps, and each thread's activity meanwhile. `stamps`: index
    of the time stamp that each lap was written to, -1 for none. `other_laps`, `other_stamps`:
    likewise, for threads running in parallel with the region's own."""

    cost: SimulatedCost
    laps: tuple[SimulatedCost, ...]
    threads: tuple[SimulatedCost, ...]
    stamps: tuple[int, ...] = ()
    other_laps: tuple[SimulatedCost, ...] = ()
    other_stamps: tuple[int, ...] = ()


@dataclass(frozen=True)
class SimulatorRun:
    """The regions of a run in order; `unmodelled`: instructions timed as plain ones; `said`: the
    output of a quiet job."""

    regions: tuple[Region, ...]
    unmodelled: int
    said: str = ""


@dataclass(frozen=True)
class SimulatorJob:
    """What to run. `root`: system root with its libraries, unless static; `whole`: the entire run
    is one region; `counter_laps`: reading the core's counter ends a lap; `quiet`: show output only
    on failure. `variables`: the complete environment, None for this process's; like the arguments,
    it is on the program's stack and shifts everything below. `folder`: the working directory."""

    command: tuple[str, ...]
    root: Path | None = None
    whole: bool = False
    counter_laps: bool = False
    quiet: bool = False
    seconds: float = 3600.0
    variables: Mapping[str, str] | None = None
    folder: Path | None = None

    @property
    def program(self) -> Path:
        """The file that is executed."""
        return (self.folder or Path()) / self.command[0]


def run_job(
    emulator: Emulator, target: SimulatedCore, job: SimulatorJob, plugin: Path | None = None
) -> SimulatorRun:
    """Runs a program and reads the plugin's results. `plugin`: its file, by default the one built
    for the emulator. Raises InputError with advice if the program fails, takes too long, has no
    mark, or executes an instruction that the core lacks."""
    return run_cores(emulator, target, (target.core,), job, plugin)[0]


def run_cores(
    emulator: Emulator,
    target: SimulatedCore,
    cores: Sequence[Core],
    job: SimulatorJob,
    plugin: Path | None = None,
) -> tuple[SimulatorRun, ...]:
    """Like run_job, for several models at once, such as one core on different boards; the target's
    CPU executes the program."""
    program = job.program
    check_program(program, target.board, job.root)
    plugin = plugin or plugin_of(emulator)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        options = [f"out={out}"]
        for number, core in enumerate(cores):
            path = Path(folder) / f"core{number}"
            path.write_text(core_text(core), encoding="ascii")
            options.append(f"core={path}")
        options += ["entire=1"] if job.whole else []
        options += ["laps=counter"] if job.counter_laps else []
        extra = ["-plugin", ",".join([str(plugin), *options])]
        code, said = _execute(emulator, target, job, extra)
        if code != 0:
            raise InputError(_why_failed(emulator, target, job, code, said))
        try:
            document = json.loads(out.read_bytes())
        except (OSError, ValueError):
            raise InputError(
                f"{program}: expected the plugin's answer, found none{_quote_last_line(said)}; "
                "please report this"
            ) from None
    _check_marks(document, job)
    return tuple(_run_of(each, target, job, said) for each in document["cores"])


def _execute(
    emulator: Emulator,
    target: SimulatedCore,
    job: SimulatorJob,
    extra: Sequence[str],
    seconds: float | None = None,
) -> tuple[int, str]:
    """A program's exit code and output; leaves no process behind."""
    options = ["-L", str(job.root)] if job.root else []
    if target.board.arch != "armv7l":
        options += ["-R", hex(GUEST_BYTES)]
    with subprocess.Popen(
        [emulator.path, "-cpu", spelled(emulator.path, target.cpu), *options, *extra, *job.command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if job.quiet else sys.stderr.fileno(),
        stderr=subprocess.STDOUT if job.quiet else None,
        cwd=job.folder,
        env=os.environ if job.variables is None else job.variables,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=seconds or job.seconds)
        except subprocess.TimeoutExpired:
            raise InputError(
                f"{job.program}: expected it to end within {job.seconds:.0f} s, found it still "
                "running; mark a smaller region, or raise --timeout SECONDS"
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said or ""


def _why_failed(
    emulator: Emulator, target: SimulatedCore, job: SimulatorJob, code: int, said: str
) -> str:
    program = job.program
    if code == -signal.SIGILL:
        found = _illegal_instruction(emulator, target, job)
        return (
            f"{program}: expected instructions that {target.core.name} has, found {found}; "
            f"compile it for that core (-mcpu={target.board.core or target.core.name})"
        )
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            return (
                f"{program}: expected it to exit, found it killed by "
                f"{name}{_quote_last_line(said)}; "
                f"check that it runs: {Path(emulator.path).name} {program}"
            )
    if "plugin" in said and "Could not load" in said:
        return f"{emulator.path}: expected it to load our plugin, found{_quote_last_line(said)}"
    return (
        f"{program}: expected exit code 0, found {code}{_quote_last_line(said)}; "
        f"check that it runs: {Path(emulator.path).name} {program}"
    )


def _illegal_instruction(emulator: Emulator, target: SimulatedCore, job: SimulatorJob) -> str:
    """The name of the illegal instruction, found by running the program again with a trace."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        traced = replace(job, quiet=True)
        extra = ["-strace", "-d", "in_asm", "-D", str(log)]
        try:
            _execute(emulator, target, traced, extra, _TRACE_SECONDS)
            text = log.read_text(errors="replace")
        except (InputError, OSError):
            return "one that it lacks"
    places: list[str] = re.findall(r"SIGILL.*?si_addr=(?:0x)?([0-9a-fA-F]+)", text)
    if not places:
        return "one that it lacks"
    address = int(places[-1], 16)
    line = re.compile(rf"^0x0*{address:x}:\s+(.*)$", re.MULTILINE)
    listed = line.findall(text)
    # For unknown instructions the disassembler prints .byte, preceded by their encoding.
    what = printable(listed[-1], 80).partition(".byte")[0] if listed else "one that it lacks"
    return f"{' '.join(what.split())} at 0x{address:x}"


def _quote_last_line(said: str) -> str:
    """The last line of a program's output, to embed in a sentence."""
    lines = [line for line in said.splitlines() if line.strip()]
    return f" ({printable(lines[-1], _TAIL)})" if lines else ""


def _check_marks(document: Mapping[str, Any], job: SimulatorJob) -> None:
    program = job.program
    if document.get("schema") != _SCHEMA:
        raise InputError(f"{program}: expected {_SCHEMA}, found {document.get('schema')}")
    if not document["regions_seen"]:
        raise InputError(
            f"{program}: expected the mark close(777001) at the start of the region, found none; "
            f"mark it ({_DOCS}), or time all of it: --entire-program"
        )


def _run_of(
    found: Mapping[str, Any], target: SimulatedCore, job: SimulatorJob, said: str
) -> SimulatorRun:
    """The run on one core."""
    unknown = found["unknown"]
    first = unknown.get("first", {})
    if first.get("feature"):
        raise InputError(
            f"{job.program}: expected instructions that {target.core.name} has, found one of "
            f"{first['feature']} at {first['address']}; compile it for that core "
            f"(-mcpu={target.board.core or target.core.name})"
        )
    return SimulatorRun(
        tuple(_region_of(each) for each in found["regions"]), unknown["count"], said
    )


def _region_of(found: Mapping[str, Any]) -> Region:
    laps, threads, others = (
        tuple(_cost_of(c) for c in found.get(k, ())) for k in ("laps", "threads", "other_laps")
    )
    stamps, other_stamps = (tuple(found.get(k, ())) for k in ("stamps", "other_stamps"))
    return Region(_cost_of(found), laps, threads, stamps, others, other_stamps)


def _cost_of(found: Mapping[str, Any]) -> SimulatedCost:
    return SimulatedCost(found["cycles"], found["instructions"], found["bound"])
