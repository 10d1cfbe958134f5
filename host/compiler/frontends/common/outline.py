"""The outline of a model file: what it declares, whether or not it can be compiled.

Taken from the file's records as the importers read them, without shape inference: amounts that
depend on shapes are None if the file leaves shapes open.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Dims = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Slot:
    """An input, output or state; `shape` has a name or None for open dimensions, and is None if
    even the rank is unknown.

    `scale` and `zero_point` are set for integer tensors with per-tensor quantization.
    """

    name: str
    dtype: str
    shape: Dims | None
    scale: float | None = None
    zero_point: int | None = None


@dataclass(frozen=True)
class Outline:
    """`operators`: number or name in the file, and kind, of each; `known`: the supported kinds.

    `parameters` counts the elements of all constants, `parameter_bytes` their size in the file.
    `multiply_adds` and `arena_bytes` are estimates for the file's operator order.
    """

    format: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    states: tuple[Slot, ...]
    operators: tuple[tuple[str, str], ...]
    known: frozenset[str]
    parameters: int
    parameter_bytes: int
    multiply_adds: int | None
    arena_bytes: int | None


@dataclass(frozen=True)
class Sized:
    """The declared size of a tensor; a `constant` is not part of the arena."""

    shape: tuple[int, ...] | None
    item_bytes: int
    constant: bool = False

    @property
    def elements(self) -> int | None:
        return None if self.shape is None else math.prod(self.shape)


@dataclass(frozen=True)
class OutlineStep:
    """One operator; `ins` and `outs` are tensor keys, None if absent."""

    kind: str
    ins: Sequence[object]
    outs: Sequence[object]


_OUT = -1
_TAIL, _WINDOW, _HEAD, _LAST = slice(1, None), slice(1, 3), slice(0, -1), slice(-1, None)
_PRODUCT = (0, _OUT, _LAST)  # every element of x [.., m, k] is used once per output column
# Kind → (a, b, dims): multiply-adds = elements of a · product of b's `dims`. a and b are input
# indices or the output.
_PRODUCTS: Mapping[str, tuple[int, int, slice]] = {
    "CONV_2D": (_OUT, 1, _TAIL),
    "DEPTHWISE_CONV_2D": (_OUT, 1, _WINDOW),
    "TRANSPOSE_CONV": (2, 1, _HEAD),
    "FULLY_CONNECTED": _PRODUCT,
    "BATCH_MATMUL": _PRODUCT,
    "Conv": (_OUT, 1, _TAIL),
    "ConvInteger": (_OUT, 1, _TAIL),
    "QLinearConv": (_OUT, 3, _TAIL),
    "ConvTranspose": (0, 1, _TAIL),
    "Gemm": _PRODUCT,
    "MatMul": _PRODUCT,
    "MatMulInteger": _PRODUCT,
    "QLinearMatMul": _PRODUCT,
}


def count_multiply_adds(
    steps: Iterable[OutlineStep], tensors: Mapping[object, Sized]
) -> int | None:
    """The multiply-adds of convolutions and matrix products; None if a shape is unknown."""
    total = 0
    for step in steps:
        if step.kind not in _PRODUCTS:
            continue
        first, second, sizes = _PRODUCTS[step.kind]
        one, other = _operand_shape(step, first, tensors), _operand_shape(step, second, tensors)
        if one is None or other is None:
            return None
        total += math.prod(one) * math.prod(other[sizes])
    return total


def _operand_shape(
    step: OutlineStep, operand: int, tensors: Mapping[object, Sized]
) -> tuple[int, ...] | None:
    keys, place = (step.outs, 0) if operand == _OUT else (step.ins, operand)
    found = tensors.get(keys[place]) if place < len(keys) else None
    return None if found is None else found.shape


def peak_bytes(
    steps: Sequence[OutlineStep], tensors: Mapping[object, Sized], outputs: Iterable[object]
) -> int | None:
    """The peak of live tensor bytes in file order; None if a shape is unknown."""
    last: dict[object, int] = {}
    for index, step in enumerate(steps):
        last.update((key, index) for key in (*step.ins, *step.outs))
    last.update((key, len(steps)) for key in outputs)
    ends: dict[int, list[object]] = {}
    for key, index in last.items():
        ends.setdefault(index, []).append(key)
    alive: dict[object, int] = {}
    now = peak = 0
    for index, step in enumerate(steps):
        for key in (*step.ins, *step.outs):
            sized = tensors.get(key)
            if key in alive or sized is None or sized.constant:
                continue
            if sized.elements is None:
                return None
            alive[key] = sized.elements * sized.item_bytes
            now += alive[key]
        peak = max(peak, now)
        for key in ends.get(index, ()):
            now -= alive.pop(key, 0)
    return peak
