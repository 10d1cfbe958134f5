"""Estimates matrix products on a core that we do not have, for each method of the GEMM library.

The kernels are those that would run on the board; a small static program computes the product with
each method, once to warm up and once timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.errors import InputError
from edgekit.host.simulator.emulator import find_emulator
from edgekit.host.simulator.model import runner_job
from edgekit.host.simulator.programs import Programs, build_programs
from edgekit.host.simulator.run import Cost, run_job
from edgekit.host.simulator.target import Target
from edgekit.kb.features import GemmShape, Packed

_DTYPES = ("f32", "s8", "u8")  # ek_gemm_dtype; of A
_SIDES = {"none": -1, "a": 0, "b": 1}
_SPLITS = ("m", "n")
_MOST_METHODS = 100  # per run


@dataclass(frozen=True)
class Multiplication:
    """One product: its dimensions, the type of A, and the operand that is packed ahead."""

    shape: GemmShape
    dtype: str = "f32"
    packed: Packed = "none"
    threads: int = 1


class ProductTimer:
    """Cycles of products on a board's core; compiles the kernels once."""

    def __init__(
        self, target: Target, seconds: float = 3600.0, programs: Programs | None = None
    ) -> None:
        """`seconds`: limit for one run; `programs`: by default those built for the board. Raises
        InputError if there is no emulator."""
        self._target = target
        self._seconds = seconds
        self._emulator = find_emulator(target.board.arch)
        self._programs = programs or build_programs(target.board, self._emulator)

    def costs(self, product: Multiplication, methods: Sequence[Method]) -> tuple[Cost, ...]:
        """The cost of each method with warm caches and predictors. InputError if a run fails."""
        return tuple(
            cost
            for at in range(0, len(methods), _MOST_METHODS)
            for cost in self._run_methods(product, methods[at : at + _MOST_METHODS])
        )

    def _run_methods(self, product: Multiplication, methods: Sequence[Method]) -> Iterator[Cost]:
        shape = product.shape
        sizes = (_DTYPES.index(product.dtype), shape.m, shape.n, shape.k)
        numbers = (*sizes, _SIDES[product.packed], product.threads)
        command = ["product", "kernels.so", *map(str, numbers), *map(_format_method, methods)]
        ours, arch = self._programs, self._target.board.arch
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "kernels.so").write_bytes(ours.kernels)
            job = runner_job(command, Path(folder), arch, self._seconds, ours.runner)
            regions = run_job(self._emulator, self._target, job, ours.plugin).regions
        if len(regions) != len(methods):
            raise InputError(
                f"{shape}: expected {len(methods)} products to be timed, found {len(regions)}; "
                "please report this"
            )
        return (region.cost for region in regions)


def _format_method(how: Method) -> str:
    """The method in product.c's syntax."""
    packs = (int(how.pack_a), int(how.pack_b), _SPLITS.index(how.split))
    return ",".join(map(str, (how.mc, how.kc, how.nc, how.mr, how.nr, *packs)))
