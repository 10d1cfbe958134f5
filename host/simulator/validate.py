"""Runs networks under the timing models for `scripts/validate_board_time`, and keeps the results.

One QEMU run serves all boards that run the same program: the same core and the same ncnn. Results
are stored by all of their inputs, so that an interrupted run can resume.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import cache_folder
from edgekit.host.simulator.core_text import core_text
from edgekit.host.simulator.emulator import find_emulator, plugin_of
from edgekit.host.simulator.identity import view_of
from edgekit.host.simulator.root import system_root, wheels
from edgekit.host.simulator.run import GUEST_BYTES, SimulatorJob, SimulatorRun, run_cores
from edgekit.host.simulator.target import SimulatedCore, cpu_of
from edgekit.host.simulator.witness import Witness, input_size
from edgekit.kb.targets.board import load_board
from edgekit.kb.targets.core import Core

Tell = Callable[[str], None]

_DRIVER = Path(__file__).parent / "guest" / "ncnn_network.py"
_SECONDS = 7200.0
# The RISC-V wheel references missing functions, which are never called.
_LAZY = (
    "import os, runpy, sys; sys.setdlopenflags(os.RTLD_LAZY); sys.argv = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


@dataclass(frozen=True)
class Estimate:
    """The estimate of one network on one board: `bound` attributes the cycles to causes."""

    cycles: int
    instructions: int
    unknown: int
    bound: Mapping[str, int]


def model_of(witness: Witness) -> Core:
    """The timing model of a published board: its core with the board's clock and memory."""
    clusters = {c.name: c for c in load_board(witness.profile).timing}
    core = clusters[witness.cluster].timed()
    if witness.lent:
        core = replace(core, dram=replace(core.dram, turn_ns=0))
    return replace(core, name=witness.name, clock_mhz=witness.clock_mhz)


def estimates(
    witnesses: Sequence[Witness], network: Path, threads: int, tell: Tell
) -> dict[str, Estimate]:
    """Estimates one network on boards that run the same program, by board name."""
    cores = {w.name: model_of(w) for w in witnesses}
    plugin = plugin_of(find_emulator(_witness_arch(witnesses[0]), tell))
    keys = {
        name: _cache_key(core, witnesses[0], network, threads, plugin)
        for name, core in cores.items()
    }
    kept = {name: _load_estimate(key) for name, key in keys.items()}
    missing = [name for name, answer in kept.items() if answer is None]
    if missing:
        runs = _run_network(witnesses[0], [cores[n] for n in missing], network, threads, tell)
        for name, run in zip(missing, runs, strict=True):
            answer = kept[name] = _to_estimate(run)
            _save_estimate(keys[name], answer)
    return {name: answer for name, answer in kept.items() if answer is not None}


def _witness_arch(witness: Witness) -> str:
    return load_board(witness.profile).arch


def _to_estimate(run: SimulatorRun) -> Estimate:
    cost = run.regions[0].cost
    return Estimate(cost.cycles, cost.instructions, run.unmodelled, cost.bound)


def _cache_key(core: Core, witness: Witness, network: Path, threads: int, plugin: Path) -> str:
    parts = [
        core_text(core),
        witness.core,
        witness.wheel,
        str(threads),
        plugin.name,
        str(GUEST_BYTES),
    ]
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in (network, _DRIVER):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _validation_folder() -> Path:
    return cache_folder() / "validation"


def _load_estimate(key: str) -> Estimate | None:
    try:
        found = json.loads((_validation_folder() / f"{key}.json").read_bytes())
        return Estimate(**found)
    except (OSError, ValueError, TypeError):
        return None


def _save_estimate(key: str, answer: Estimate) -> None:
    _validation_folder().mkdir(parents=True, exist_ok=True)
    atomic_write(_validation_folder() / f"{key}.json", json.dumps(vars(answer)).encode())


def _run_network(
    witness: Witness, cores: Sequence[Core], network: Path, threads: int, tell: Tell
) -> tuple[SimulatorRun, ...]:
    """One run under the models of several boards; the program sees the first witness's core."""
    board = load_board(witness.profile)
    root = system_root(board.arch, tell)
    site = wheels(root, [f"ncnn=={witness.wheel}"], tell)
    view = view_of(witness.core, model_of(witness), root)
    python = [str(view.interpreter), "-S", *(["-c", _LAZY] if board.arch == "riscv64" else [])]
    size = str(input_size(network.stem))
    job = SimulatorJob(
        (*python, str(_DRIVER), str(network), size, str(threads)),
        view.folder,
        quiet=True,
        seconds=_SECONDS,
        variables={"PYTHONPATH": str(site), "LC_ALL": "C", "PYTHONHASHSEED": "0"},
    )
    target = SimulatedCore(board, cores[0], cpu_of(board, witness.core))
    return run_cores(find_emulator(board.arch, tell), target, cores, job)
