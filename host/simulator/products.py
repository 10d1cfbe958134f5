"""Estimates matrix products on a core that we do not have, for each method of the GEMM library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.simulator.programs import Programs
from edgekit.host.simulator.run import Cost
from edgekit.host.simulator.target import Target
from edgekit.host.simulator.timed import Call, RunnerCalls
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
        """See `RunnerCalls`."""
        self._calls = RunnerCalls(target, seconds, programs)

    def costs(self, product: Multiplication, methods: Sequence[Method]) -> tuple[Cost, ...]:
        """The cost of each method with warm caches and predictors. InputError if a run fails."""
        return product_costs(self._calls, product, methods)


def product_costs(
    calls: RunnerCalls, product: Multiplication, methods: Sequence[Method]
) -> tuple[Cost, ...]:
    """The cost of each method with warm caches and predictors. InputError if a run fails."""
    shape = product.shape
    sizes = (_DTYPES.index(product.dtype), shape.m, shape.n, shape.k)
    numbers = (*sizes, _SIDES[product.packed], product.threads)
    found: list[Cost] = []
    for at in range(0, len(methods), _MOST_METHODS):
        words = [method_text(how) for how in methods[at : at + _MOST_METHODS]]
        costs, _ = calls.run(Call("product", (*numbers, *words), len(words), "products"))
        found += costs
    return tuple(found)


def method_text(how: Method) -> str:
    """The method in the runner's syntax."""
    packs = (int(how.pack_a), int(how.pack_b), _SPLITS.index(how.split))
    return ",".join(map(str, (how.mc, how.kc, how.nc, how.mr, how.nr, *packs)))
