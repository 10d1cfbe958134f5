"""Runs products of a board's kernels library on a core that we do not have.

The kernels are those that would run on the board; a small static program calls them, each once to
warm up and once timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.common.content import Content
from edgekit.host.errors import InputError
from edgekit.host.simulator.emulator import find_emulator
from edgekit.host.simulator.model import runner_job
from edgekit.host.simulator.programs import Programs, build_programs
from edgekit.host.simulator.run import SimulatedCost, run_job
from edgekit.host.simulator.target import SimulatedCore

_KERNELS = "kernels.so"


@dataclass(frozen=True)
class RunnerCommand:
    """A command of the runner: `words` after the library, the `files` that it reads, and the names
    of those that it writes. It times `count` products of the kind `what`, for messages."""

    command: str
    words: Sequence[object]
    count: int
    what: str
    files: Mapping[str, Content] | None = None
    results: Sequence[str] = ()


class RunnerCalls:
    """Times calls on a board's core; compiles the kernels once."""

    def __init__(
        self, target: SimulatedCore, seconds: float = 3600.0, programs: Programs | None = None
    ) -> None:
        """`seconds`: limit for one run; `programs`: by default those built for the board. Raises
        InputError if there is no emulator."""
        self.target = target
        self._seconds = seconds
        self._emulator = find_emulator(target.board.arch)
        self._programs = programs or build_programs(target.board, self._emulator)

    def run(self, call: RunnerCommand) -> tuple[tuple[SimulatedCost, ...], dict[str, bytes]]:
        """The costs with warm caches and predictors, and the files written. InputError if the run
        fails."""
        command, ours = (call.command, _KERNELS, *map(str, call.words)), self._programs
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file, data in {_KERNELS: ours.kernels, **(call.files or {})}.items():
                (folder / file).write_bytes(data)
            job = runner_job(command, folder, self.target.board.arch, self._seconds, ours.runner)
            regions = run_job(self._emulator, self.target, job, ours.plugin).regions
            results = {file: (folder / file).read_bytes() for file in call.results}
        if len(regions) != call.count:
            raise InputError(
                f"expected {call.count} {call.what} to be timed, found {len(regions)}; "
                "please report this"
            )
        return tuple(region.cost for region in regions), results
