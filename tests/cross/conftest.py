"""Virtual boards: qemu-user with a board's CPU, and a C driver that runs a compiled model there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.host.lab.zoo.cases import Cases
from edgekit.host.simulator.emulator import HALF as SWITCHES
from edgekit.host.simulator.emulator import spelled
from edgekit.kb.targets.board import BoardProfile, load_board
from tests.support.patience import PROCESS
from tests.support.toolchains import compile_for

_KERNELS = Path(__file__).parents[2] / "device" / "kernels"
_DRIVER = Path(__file__).with_name("driver.c")
# Provided by qemu-user and Debian's libc6-*-cross (loader and libc of each architecture).
QEMU = {
    "aarch64": ("qemu-aarch64", "/usr/aarch64-linux-gnu"),
    "armv7l": ("qemu-arm", "/usr/arm-linux-gnueabihf"),
    "riscv64": ("qemu-riscv64", "/usr/riscv64-linux-gnu"),
}
CPUS = {
    "a53": "cortex-a53",
    "a57": "cortex-a57",
    "a76": "cortex-a76",
    "a720": "max",
    "a7": "cortex-a7",
    "rv64gc": "rv64,v=false",
    "rv64gcv": "rv64,v=true,vlen=128",
    "bpi-f3": f"rv64,v=true,vlen=256,{SWITCHES}",
    "rv64gcv-zvl512b": f"rv64,v=true,vlen=512,{SWITCHES}",
}
RVV = ("rv64gcv", "bpi-f3", "rv64gcv-zvl512b")  # one profile per vector length
_DEFAULT = ("a57", "a7", "rv64gcv")  # one core per instruction set family


def cores(*names: str) -> list[Any]:
    """Parameters for tests that any core can run: all but `_DEFAULT` are exhaustive."""
    return [
        pytest.param(name, marks=() if name in _DEFAULT else pytest.mark.exhaustive)
        for name in names
    ]


# Half-precision targets: profile, and the QEMU CPU that runs its code. Code for RVV of 128 bits or
# more must run at any vector length.
HALF = {
    "a76": ("a76", CPUS["a76"]),
    "a55": ("a55", CPUS["a76"]),
    "x60": ("bpi-f3", CPUS["bpi-f3"]),
    "rvv128": ("rv64gcv", f"rv64,v=true,vlen=128,{SWITCHES}"),
    "rvv128_at_512": ("rv64gcv", CPUS["rv64gcv-zvl512b"]),
    "rvv512": ("rv64gcv-zvl512b", CPUS["rv64gcv-zvl512b"]),
}


def half_board(profile: str) -> BoardProfile:
    """The profile of a core that computes in half precision."""
    board = load_board(profile)
    return board if board.computes_half else replace(board, extras=(board.isa.half_feature,))


@dataclass(frozen=True)
class VirtualBoard:
    """One CPU model of qemu-user."""

    arch: str
    cpu: str
    driver: Path

    def execute(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        qemu, root = QEMU[self.arch]
        cpu = spelled(qemu, self.cpu)
        command = [qemu, "-cpu", cpu, "-L", root, str(self.driver), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PROCESS, check=False)

    def run(self, release: Path, cases: Cases, scratch: Path, threads: int = 1) -> list[Any]:
        """Outputs of all calls of the model in `release`, one array [calls, ...] per output."""
        about = json.loads(self.execute(str(release / "model.so")).stdout)
        inputs, outputs = scratch / "in.bin", scratch / "out.bin"
        calls = len(cases.inputs[0]) if cases.inputs else 1
        with inputs.open("wb") as file:
            for call in range(calls):
                for array in cases.inputs:
                    file.write(array[call].tobytes())
        out_types = [_row_type(t) for t in about["outputs"]]
        sizes = ",".join(str(t.itemsize) for t in map(_row_type, about["inputs"]))
        result = self.execute(
            *(str(release / name) for name in ("model.so", "weights.bin")),
            *(str(about[key]) for key in ("arena_bytes", "state_bytes")),
            *(str(number) for number in (cases.steps, calls)),
            *(str(path) for path in (inputs, outputs)),
            str(threads),
            sizes,
            ",".join(str(t.itemsize) for t in out_types),
        )
        assert result.returncode == 0, result.stderr + result.stdout
        rows = np.fromfile(outputs, np.dtype([(f"f{i}", t) for i, t in enumerate(out_types)]))
        assert len(rows) == calls
        return [rows[f"f{i}"] for i in range(len(out_types))]

    def run_cases(self, library: Path, cases: bytes, size: int, threads: int) -> bytes:
        """Run `cases` through a model with one input and one output; return its `size` output
        bytes."""
        given, made, nothing = (library.with_name(n) for n in ("in.bin", "out.bin", "weights.bin"))
        given.write_bytes(cases)
        nothing.write_bytes(b"")
        files = (str(given), str(made), str(threads), str(len(cases)), str(size))
        done = self.execute(str(library), str(nothing), "0", "0", "1", "1", *files)
        assert done.returncode == 0, done.stderr + done.stdout
        return made.read_bytes()


def _row_type(tensor: dict[str, Any]) -> np.dtype[Any]:
    return np.dtype((BY_NAME[tensor["dtype"]].npy, tuple(tensor["shape"])))


@pytest.fixture(scope="session")
def virtual_board(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., VirtualBoard]:
    """virtual_board(profile, cpu=None): a board with the profile's CPU, or with another compatible
    one."""
    drivers: dict[str, Path] = {}

    def make(profile: str, cpu: str | None = None) -> VirtualBoard:
        board = load_board(profile)
        if board.arch not in drivers:
            path = tmp_path_factory.mktemp(board.arch) / "driver"
            compile_driver(board, path)
            drivers[board.arch] = path
        return VirtualBoard(board.arch, cpu or CPUS[profile], drivers[board.arch])

    return make


def compile_driver(board: BoardProfile, path: Path, *more: str) -> None:
    # The least CPU of the architecture: the driver must reach ek_missing_feature on any core.
    plain = {"riscv64": ["-mcpu=baseline_rv64"], "armv7l": ["-mcpu=cortex_a7"]}
    cpu = plain.get(board.arch, [])
    compile_for(board, _DRIVER, path, *cpu, *more, "-ldl", "-pthread", f"-I{_KERNELS}")
