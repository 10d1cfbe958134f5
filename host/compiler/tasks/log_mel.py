"""The features of sound that Whisper takes (Radford et al., 2022): logarithms of mel bands, as
WhisperFeatureExtractor of Hugging Face computes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Graph, Tensor
from edgekit.host.compiler.tasks.append import Appender

_LEAST, _BELOW = 1e-10, 8.0  # of the energy, and decades below the loudest
_BEND, _HERTZ = 1000.0, 200 / 3  # Slaney's mel scale is linear up to 15 mel
_LOG_STEP = np.log(6.4) / 27


@dataclass(frozen=True)
class LogMel:
    """`bands` up to half the `rate`, of `fft` samples each `hop`, along `samples`."""

    rate: int
    samples: int
    bands: int
    fft: int = 400
    hop: int = 160

    @property
    def frames(self) -> int:
        return self.samples // self.hop


def log_mel(features: LogMel, name: str, called: str) -> Graph:
    """Computes the features [1, bands, frames] of the input `name`, f32 [1, samples]: the output
    `called`."""
    f, one = features, (1, 1)
    samples = Tensor(name, (1, f.samples), DType.F32)
    to = Appender(Graph(called, {name: samples}, (), (name,), ()), called)
    half, last = f.fft // 2, f.samples - 1
    before = to.constant(np.arange(half, 0, -1), DType.I32)  # the ends are mirrored
    after = to.constant(np.arange(last - 1, last - 1 - half, -1), DType.I32)
    ends = (to.add(ops.Gather(1), name, places) for places in (before, after))
    whole = to.add(ops.Concat(1), next(ends), name, next(ends))
    time = np.arange(f.fft)
    weights = mel_weights(f)
    used = np.flatnonzero(weights.any(1))  # lines of the spectrum that are in a band
    turns = 2 * np.pi * np.outer(used, time) / f.fft
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * time / f.fft)
    waves = np.concatenate([np.cos(turns), np.sin(turns)]) * hann
    length = f.samples + 2 * half
    image = to.add(ops.Reshape((1, 1, length, 1)), whole)
    filters, none = to.constant(waves[:, None, :, None]), to.constant(np.zeros(len(waves)))
    made = to.add(ops.Conv2D(stride=(1, f.hop)), image, filters, none)
    squares = to.add(ops.Mul(), made, made)
    real, imaginary = to.add_all(ops.Split(3, (len(used), len(used))), squares)
    energy = to.add(ops.Add(), real, imaginary)
    rows = to.shape(energy)[2]
    energy = to.add(ops.Reshape((rows, len(used))), energy)
    if rows > f.frames:  # the last one is left out
        energy, _ = to.add_all(ops.Split(0, (f.frames, rows - f.frames)), energy)
    bands = to.add(ops.MatMul(), energy, to.constant(weights[used]))
    made = to.add(ops.Maximum(), bands, to.constant(np.full(one, _LEAST)))
    decades = to.add(ops.Mul(), to.add(ops.Log(), made), to.constant(np.full(one, 1 / np.log(10))))
    loudest = to.add(ops.Reshape(one), to.add(ops.ReduceMax((0, 1)), decades))
    floor = to.add(ops.Sub(), loudest, to.constant(np.full(one, _BELOW)))
    made = to.add(ops.Maximum(), decades, floor)
    made = to.add(ops.Add(), to.add(ops.Mul(), made, to.constant(np.full(one, 0.25))),
                  to.constant(np.ones(one)))  # fmt: skip
    made = to.add(ops.Reshape((1, f.bands, f.frames)), to.add(ops.Transpose((1, 0)), made))
    return to.with_output(made, called)


def mel_weights(f: LogMel) -> Array:
    """Weights of triangular bands of equal area, as Slaney's Auditory Toolbox has them [lines,
    bands]."""
    top = f.rate / 2
    lines = np.linspace(0, top, f.fft // 2 + 1)[:, None]
    edges = _hertz(np.linspace(0, _mel(top), f.bands + 2))
    low, center, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (lines - low) / (center - low), (high - lines) / (high - center)
    found: Array = np.maximum(0, np.minimum(rising, falling)) * (2 / (high - low))
    return found


def _mel(hertz: float) -> float:
    if hertz < _BEND:
        return hertz / _HERTZ
    return float(_BEND / _HERTZ + np.log(hertz / _BEND) / _LOG_STEP)


def _hertz(mel: Array) -> Array:
    bend = _BEND / _HERTZ
    bent: Array = _BEND * np.exp(_LOG_STEP * (mel - bend))
    return np.where(mel < bend, mel * _HERTZ, bent)
