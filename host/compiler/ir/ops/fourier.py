"""Discrete Fourier transform of floats, on whole rows or on frames that slide over them (STFT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.host.compiler.ir.checks import (
    need_dtype,
    need_positive,
    need_rank,
    need_shape,
    operand,
    optional,
)
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["Fourier"]

_PAIR = 2  # real and imaginary part


@dataclass(frozen=True)
class Fourier(Operator):
    """x f32 [rows, n, 1 or 2: real, imaginary] → spectra f32 [rows, frames, frequencies, 2].

    A frame has `length` samples, times the optional window f32 [length], and zeros up to `points`;
    the next one starts `step` samples later. `planar`: [rows, frames, 2, frequencies].

    `onesided`, of x [rows, n, 1]: only the lower points // 2 + 1 frequencies. `inverse`: from
    spectra to samples, divided by `points` and without a window; with `onesided`, from the lower
    frequencies to real samples [rows, frames, points, 1], where imaginary parts of the first
    frequency and of the middle one count as 0.
    """

    kind: ClassVar[str] = "fourier"
    elementwise = False
    arithmetic = Arithmetic.SUMMED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    LONGEST: ClassVar[int] = 1 << 20  # points
    points: int = 1
    length: int = 1
    step: int = 1
    onesided: bool = False
    inverse: bool = False
    planar: bool = False

    @property
    def returns_real(self) -> bool:
        return self.onesided and self.inverse

    @property
    def shown(self) -> int:
        """Frequencies, or samples, of a result."""
        return self.points // 2 + 1 if self.onesided and not self.inverse else self.points

    def frames(self, x: Tensor) -> int:
        """Frames per row."""
        return (x.shape[1] - self.length) // self.step + 1

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        x, window = operand(ins, 0, "signal"), optional(ins, 1)
        need_dtype(x, (DType.F32,), "signal")
        need_rank(x, 3, "signal")
        need_positive(x.shape, "signal shape")
        if not 1 <= self.points <= self.LONGEST:
            raise ShapeError(f"expected 1 to {self.LONGEST} points, found {self.points}")
        most = min(self.points // 2 + 1 if self.returns_real else self.points, x.shape[1])
        least = self.points // 2 + 1 if self.returns_real else 1
        if not least <= self.length <= most or self.step < 1:
            raise ShapeError(
                f"expected frames of {least} to {most} values and a positive step, "
                f"found {self.length} and {self.step}"
            )
        parts = (1,) if self.onesided and not self.inverse else (_PAIR,) if self.inverse else (1, 2)
        if x.shape[2] not in parts:
            raise ShapeError(
                f"expected {' or '.join(map(str, parts))} parts on the last axis, "
                f"found {x.shape[2]}"
            )
        if window is not None:
            need_dtype(window, (DType.F32,), "window")
            need_shape(window, (self.length,), "window")
            if self.inverse:
                raise ShapeError("expected no window of an inverse transform, found one")
        last = (self.points, 1) if self.returns_real else (self.shown, _PAIR)
        if self.planar:
            last = last[::-1]
        return [((x.shape[0], self.frames(x), *last), DType.F32)]

    def terms(self, ins: Sequence[Tensor | None]) -> int:
        return self.points

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        signal = required(x, 0).astype(np.float64)
        window = x[1] if len(x) > 1 else None
        wide = signal[:, :, 0] if signal.shape[2] == 1 else signal[:, :, 0] + 1j * signal[:, :, 1]
        frames = np.lib.stride_tricks.sliding_window_view(wide, self.length, axis=1)
        frames = frames[:, :: self.step]
        if window is not None:
            frames = frames * window.astype(np.float64)
        if self.returns_real:
            made = np.fft.irfft(frames, self.points)[..., None]
        else:
            transform = np.fft.ifft if self.inverse else np.fft.fft
            spectra = transform(frames, self.points)[..., : self.shown]
            made = np.stack([spectra.real, spectra.imag], -1)
        if self.planar:
            made = made.swapaxes(2, 3)
        return [made.astype(np.float32)]
