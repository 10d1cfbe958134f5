"""A TensorFlow Lite network under construction: tensors, their scales, constants in each number
type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgekit.host.compiler.exporters.tflite.file import OperatorRecord, TensorRecord
from edgekit.host.compiler.ir.types import Array, DType, Quant, Shape

_CODES = {"u8": DType.U8, "s8": DType.I8, "s16": DType.I16}


@dataclass(frozen=True, eq=False)
class Value:
    """An activation, [1, height, width, channels] or another shape, and its tensor's index."""

    number: int
    shape: Shape
    quant: Quant | None


@dataclass
class Net:
    kind: str
    seed: int = 0
    rng: np.random.Generator = field(init=False)
    tensors: list[TensorRecord] = field(default_factory=list)
    operators: list[OperatorRecord] = field(default_factory=list)
    live: list[Value] = field(default_factory=list)

    def begin(self, seed: int) -> None:
        """Begins a network that shares only the file with those before it."""
        self.seed, self.live = seed, []
        self.rng = np.random.default_rng((seed, *b"tflite", *self.kind.encode()))

    @property
    def dtype(self) -> DType:
        return _CODES.get(self.kind, DType.F32)

    @property
    def quantized(self) -> bool:
        return self.kind in _CODES

    def draw(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def tensor(
        self, shape: Shape, dtype: DType, quant: Quant | None = None, data: Array | None = None
    ) -> int:
        name = f"t{len(self.tensors)}_{self.seed}"
        self.tensors.append(TensorRecord(name, tuple(shape), dtype, quant, data))
        return len(self.tensors) - 1

    def integers(self, values: Any) -> int:
        data = np.array(values, np.int32)
        return self.tensor(data.shape, DType.I32, None, data)

    def quant(self, largest: float | None = None) -> Quant | None:
        """A scale of activations; None in networks of floats."""
        if not self.quantized:
            return None
        largest = largest or float(self.rng.uniform(1.5, 5))
        if self.kind == "s16":
            return _quant(largest / 32767, 0)
        low, high = _ends(self.dtype)
        return _quant(2 * largest / 255, (low + high + 1) // 2 + int(self.rng.integers(-20, 20)))

    def fixed(self, eight: float, sixteen: float, signed: bool = False) -> Quant | None:
        """The scale that LiteRT expects of an operator's result."""
        if not self.quantized:
            return None
        low, high = _ends(self.dtype)
        if self.kind == "s16":
            return _quant(sixteen, 0)
        return _quant(eight, (low + high + 1) // 2 if signed else low)

    def value(
        self,
        code: str,
        operands: Sequence[int],
        shape: Shape,
        quant: Quant | None,
        options: str = "",
        **fields: Any,
    ) -> Value:
        made = self.tensor(shape, self.dtype, quant)
        self.operator(code, operands, [made], options, **fields)
        return Value(made, tuple(shape), quant)

    def operator(
        self, code: str, ins: Sequence[int], outs: Sequence[int], options: str = "", **fields: Any
    ) -> None:
        self.operators.append(OperatorRecord(code, 1, tuple(ins), tuple(outs), options, fields))

    def constant(self, data: Array) -> int:
        """Floats, or quantized values at a scale of their own."""
        data = np.asarray(data, np.float32)
        quant = self.quant(max(float(np.abs(data).max(initial=0)), 0.1))
        if quant is None:
            return self.tensor(data.shape, DType.F32, None, data)
        stored = _quantized(data, quant, self.dtype)
        return self.tensor(data.shape, self.dtype, quant, stored)

    def product(
        self, x: Value, shape: Shape, axis: int, outputs: int, bare: bool = False
    ) -> list[int]:
        """Weights of `shape` with `outputs` along `axis`, such that a product keeps the variance of
        its input, and a bias unless `bare`: LiteRT runs no convolution without one."""
        fan = max(int(np.prod(shape)) // outputs, 1)
        data = self.rng.normal(0, fan**-0.5, shape).astype(np.float32)
        bias = self.rng.normal(0, 0.3, outputs).astype(np.float32) if not bare else None
        if self.kind in ("f32", "f16"):
            return [self.stored(data), *([] if bias is None else [self.stored(bias)])]
        if self.kind == "u8":
            ends = float(data.min()), float(data.max())
            scale = np.float32((ends[1] - ends[0]) / 255 or 1e-3)
            quant, dtype = _quant(scale, int(np.clip(np.rint(-ends[0] / scale), 0, 255))), DType.U8
        else:
            others = tuple(i for i in range(len(shape)) if i != axis)
            # LiteRT's own converter never writes one scale for a depthwise convolution.
            apart = self.kind == "s16" or axis or self.chance(0.7)
            largest = np.abs(data).max(axis=others if apart else None, initial=1e-3)
            quant, dtype = _quant(largest / 127, 0, axis), DType.I8
        weights = self.tensor(shape, dtype, quant, _quantized(data, quant, dtype))
        if bias is None:
            return [weights]
        if x.quant is None:
            return [weights, self.stored(bias)]
        scale = Quant(quant.scale * x.quant.scale, np.zeros(1, np.int64))
        stored = np.rint(bias / scale.scale)
        wide = DType.I64 if self.kind == "s16" else DType.I32
        return [weights, self.tensor(bias.shape, wide, scale, stored.astype(wide.numpy))]

    def stored(self, data: Array) -> int:
        """A constant, which networks of f16 expand before use."""
        if self.kind != "f16":
            return self.tensor(data.shape, DType.F32, None, data)
        half = self.tensor(data.shape, DType.F16, None, data.astype(np.float16))
        made = self.tensor(data.shape, DType.F32)
        self.operator("DEQUANTIZE", [half], [made], "DequantizeOptions")
        return made

    def at(self, x: Value, quant: Quant | None) -> Value:
        """`x` at another scale, as operators need that compute on quantized values."""
        if quant is None or quant is x.quant:
            return x
        return self.value("QUANTIZE", [x.number], x.shape, quant, "QuantizeOptions")


def _quant(scale: Any, zero: int, axis: int = 0) -> Quant:
    scales = np.atleast_1d(np.asarray(scale, np.float32))
    return Quant(scales, np.full(scales.shape, zero, np.int64), axis)


def _ends(dtype: DType) -> tuple[int, int]:
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def _quantized(data: Array, quant: Quant, dtype: DType) -> Array:
    wide = [1] * data.ndim
    if quant.per_channel:
        wide[quant.axis] = -1
    scale, zero = quant.scale.reshape(wide), quant.zero_point.reshape(wide)
    low, high = _ends(dtype)
    low = -127 if dtype is DType.I8 and not zero.any() else low
    return np.asarray(np.clip(np.rint(data / scale) + zero, low, high).astype(dtype.numpy))
