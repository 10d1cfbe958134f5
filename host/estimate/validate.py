"""Networks under the timing models: what `scripts/validate_board_time` runs and keeps.

One run of QEMU serves all boards whose programs are the same: the same core and the same ncnn.
Answers are kept by all that they follow from, so that a run that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.host.errors import InputError
from edgekit.host.estimate.emulator import find_emulator, plugin_of
from edgekit.host.estimate.identity import view_of
from edgekit.host.estimate.root import system_root, wheels
from edgekit.host.estimate.witness import Witness, input_size
from edgekit.host.files import write_whole
from edgekit.host.paths import cache_folder
from edgekit.kb.board import load_board
from edgekit.kb.core import Core
from edgekit.kb.core_text import core_text

Tell = Callable[[str], None]

_DRIVER = Path(__file__).parent / "guest" / "ncnn_network.py"
_SECONDS = 7200.0
# The wheel for RISC-V names functions that nothing calls and that it does not have.
_LAZY = (
    "import os, runpy, sys; sys.setdlopenflags(os.RTLD_LAZY); sys.argv = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
# QEMU 7.2 has no Cortex-A55, but one with the same instructions.
_CPUS = {"a55": "cortex-a76", "u74": "rv64,v=false,zba=true,zbb=true"}


@dataclass(frozen=True)
class Estimate:
    """Of one network on one board: `bound` says where the cycles went."""

    cycles: int
    instructions: int
    unknown: int
    bound: Mapping[str, int]


def model_of(witness: Witness) -> Core:
    """The timing model of a published board: its core, with the board's clock and memory."""
    clusters = {c.name: c for c in load_board(witness.profile).timing}
    core = clusters[witness.cluster].timed()
    return replace(core, name=witness.name, clock_mhz=witness.clock_mhz)


def estimates(
    witnesses: Sequence[Witness], network: Path, threads: int, tell: Tell
) -> dict[str, Estimate]:
    """One network on boards that run the same program, by the boards' names."""
    cores = {w.name: model_of(w) for w in witnesses}
    plugin = plugin_of(find_emulator(_arch(witnesses[0])))
    keys = {
        name: _key(core, witnesses[0], network, threads, plugin) for name, core in cores.items()
    }
    kept = {name: _kept(key) for name, key in keys.items()}
    missing = [name for name, answer in kept.items() if answer is None]
    if missing:
        run = _run(witnesses[0], [cores[n] for n in missing], network, threads, plugin, tell)
        for name in missing:
            answer = run["cores"][missing.index(name)]
            _keep(keys[name], _estimate(answer))
            kept[name] = _estimate(answer)
    return {name: answer for name, answer in kept.items() if answer is not None}


def _arch(witness: Witness) -> str:
    return load_board(witness.profile).arch


def _estimate(answer: Mapping[str, object]) -> Estimate:
    regions, unknown = answer["regions"], answer["unknown"]
    assert isinstance(regions, list) and isinstance(unknown, dict)
    region = regions[0]
    return Estimate(region["cycles"], region["instructions"], unknown["count"], region["bound"])


def _key(core: Core, witness: Witness, network: Path, threads: int, plugin: Path) -> str:
    parts = [core_text(core), witness.core, witness.wheel, str(threads), plugin.name]
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in (network, _DRIVER):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _folder() -> Path:
    return cache_folder() / "validation"


def _kept(key: str) -> Estimate | None:
    try:
        found = json.loads((_folder() / f"{key}.json").read_bytes())
        return Estimate(**found)
    except (OSError, ValueError, TypeError):
        return None


def _keep(key: str, answer: Estimate) -> None:
    _folder().mkdir(parents=True, exist_ok=True)
    write_whole(_folder() / f"{key}.json", json.dumps(vars(answer)).encode())


def _run(
    witness: Witness,
    cores: Sequence[Core],
    network: Path,
    threads: int,
    plugin: Path,
    tell: Tell,
) -> dict[str, list[dict[str, object]]]:
    arch = _arch(witness)
    root = system_root(arch, tell)
    site = wheels(root, [f"ncnn=={witness.wheel}"], tell)
    view = view_of(witness.core, model_of(witness), root)
    cpu = _CPUS.get(witness.core, f"cortex-{witness.core}")
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "out.json"
        options = [str(plugin), f"out={out}"]
        for core in cores:
            path = Path(work) / core.name
            path.write_text(core_text(core), encoding="ascii")
            options.append(f"core={path}")
        command = [find_emulator(arch).path, "-cpu", cpu, "-L", str(view.folder)]
        command += ["-E", f"PYTHONPATH={site}", "-plugin", ",".join(options)]
        command += [str(view.interpreter), "-S", *(["-c", _LAZY] if arch == "riscv64" else [])]
        command += [str(_DRIVER), str(network)]
        command += [str(input_size(network.stem)), str(threads)]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode or not out.is_file():
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise InputError(
                f"{network.name} on {witness.core}: expected ncnn to run it, found: "
                f"{lines[-1][:200] if lines else f'exit code {done.returncode}'}"
            )
        answer: dict[str, list[dict[str, object]]] = json.loads(out.read_bytes())
    return answer
