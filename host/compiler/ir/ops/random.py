"""Random bits from a counter, so that every run of a release can be repeated.

Salmon et al.: Parallel random numbers: as easy as 1, 2, 3 (SC 2011); names follow the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import need_dtype, need_positive, need_shape, operand
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, Tensor

__all__ = ["RandomBits"]

_ROUNDS = 10
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


@dataclass(frozen=True)
class RandomBits(Operator):
    """`words` numbers of 32 random bits ([words] u32) by Philox-4x32 of 10 rounds. ins: [3] u64,
    the key, and the lower and upper half of the counter of the first four words."""

    kind: ClassVar[str] = "random_bits"
    elementwise = False
    arithmetic = Arithmetic.EXACT
    cost_kind = "function"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    words: int = 1

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        state = operand(ins, 0, "state")
        need_dtype(state, (DType.U64,), "state")
        need_shape(state, (3,), "state")
        need_positive((self.words,), "words")
        return [((self.words,), DType.U32)]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        key, low, high = required(x, 0)
        counters = low + np.arange(math.ceil(self.words / 4), dtype=np.uint64)
        uppers = np.full(counters.shape, high, np.uint64)
        a, b, c, d = (half for v in (counters, uppers) for half in _halves(v))
        keys = [int(k) for k in _halves(key)]
        for _ in range(_ROUNDS):
            first, second = (
                _halves(v.astype(np.uint64) * np.uint64(factor))
                for v, factor in zip((a, c), _FACTORS, strict=True)
            )
            a, b = second[1] ^ b ^ np.uint32(keys[0]), second[0]
            c, d = first[1] ^ d ^ np.uint32(keys[1]), first[0]
            keys = [(k + w) % (1 << 32) for k, w in zip(keys, _WEYL, strict=True)]
        return [np.stack([a, b, c, d], axis=1).reshape(-1)[: self.words]]


def _halves(x: Array) -> tuple[Array, Array]:
    """The lower and the upper 32 bits."""
    return x.astype(np.uint32), (x >> np.uint64(32)).astype(np.uint32)
