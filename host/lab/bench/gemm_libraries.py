"""Estimates products by libraries from Debian's packages for a board's core: BLIS, Eigen, oneDNN
and XNNPACK, called from a program of ours (libraries/product.cpp) in a system root."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.host.errors import InputError
from edgekit.host.lab.bench.board_peers import Tell, Tools
from edgekit.host.simulator.emulator import find_emulator
from edgekit.host.simulator.native import Build
from edgekit.host.simulator.root import SystemRoot
from edgekit.host.simulator.run import SimulatorJob
from edgekit.host.simulator.target import SimulatedCore
from edgekit.kb.features import GemmShape

_ARCH, _GLIBC = "aarch64", "2.34"
_PROGRAM = Path(__file__).parent / "libraries"
_FLAGS = ("-O3", "-DNDEBUG", "-DEIGEN_DONT_PARALLELIZE")
_HEADERS = "libeigen3-dev"
_CLOSE = 1e-3  # of the largest value
_MOST = 127


@dataclass(frozen=True)
class Library:
    """`dtypes` that it multiplies; `packs`: whether it packs weights ahead."""

    package: str
    dtypes: tuple[str, ...]
    packs: bool = False

    @property
    def note(self) -> str:
        """For a report: where it is from, and what is done ahead."""
        ahead = "weights are" if self.packs else "nothing is"
        return f"of Debian's {self.package}; {ahead} packed ahead"


LIBRARIES: Mapping[str, Library] = {
    "blis": Library("libblis4-serial", ("f32",)),
    "eigen": Library(_HEADERS, ("f32",)),
    "onednn": Library("libdnnl2", ("f32", "s8")),
    "xnnpack": Library("libxnnpack0", ("f32", "s8"), packs=True),
}


class LibraryTimer:
    """Seconds of products on a core, one thread. Fetches the packages and compiles the program
    once; raises InputError where there are no packages, and UnreachableError."""

    def __init__(self, target: SimulatedCore, tell: Tell, tools: Tools) -> None:
        if target.board.arch != _ARCH:
            raise InputError(f"expected a board of {_ARCH}, found one of {target.board.arch}")
        self._target, self._tools = target, tools
        packages = [each.package for each in LIBRARIES.values()]
        root = tools.packages(_ARCH, packages, tell)
        self._view = tools.view(target.core.name, target.core, root)
        self._program = tools.build(_build(target, root))

    def seconds(self, name: str, dtype: str, shape: GemmShape) -> float:
        """InputError if the library fails, or if its product is wrong."""
        a, b = _operands(shape, dtype)
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            a.tofile(folder / "a")
            b.tofile(folder / "b")
            sizes = map(str, (shape.m, shape.n, shape.k))
            job = SimulatorJob(
                (str(self._program), name, dtype, *sizes, made),
                self._view.folder,
                quiet=True,
                variables={"LC_ALL": "C", "OMP_NUM_THREADS": "1"},
            )
            run = self._tools.run(find_emulator(_ARCH), self._target, job)
            _check(name, dtype, a, b, folder / "c")
        return self._target.milliseconds(run.regions[0].cost.cycles) / 1e3


def _build(target: SimulatedCore, root: SystemRoot) -> Build:
    machine = ("-target", f"{_ARCH}-linux-gnu.{_GLIBC}", f"-mcpu={target.board.cpu}")
    include = f"-I{root.folder}/usr/include/eigen3"
    return Build(_PROGRAM, (*_FLAGS, *machine, include), (*machine, "-s"), "product")


def _operands(shape: GemmShape, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(1)

    def values(*sizes: int) -> np.ndarray:
        if dtype == "f32":
            return source.standard_normal(sizes, np.float32)
        return source.integers(-_MOST, _MOST + 1, sizes).astype(np.int8)

    return values(shape.m, shape.k), values(shape.k, shape.n)


def _check(name: str, dtype: str, a: np.ndarray, b: np.ndarray, file: Path) -> None:
    """InputError unless the file has the product: of bytes exact, or XNNPACK's quotient."""
    expected, limit = a.astype(np.float64) @ b.astype(np.float64), 0.0
    found: np.ndarray
    if dtype == "f32":
        found, limit = np.fromfile(file, np.float32), _CLOSE * np.abs(expected).max()
    elif LIBRARIES[name].packs:
        expected, limit = np.clip(expected / (a.shape[1] * 64), -128, 127), 0.5 + _CLOSE
        found = np.fromfile(file, np.int8)
    else:
        found = np.fromfile(file, np.int32)
    if (
        found.size != expected.size
        or np.abs(found.reshape(expected.shape) - expected).max() > limit
    ):
        raise InputError(f"expected the product of {a.shape} and {b.shape}, found other values")
