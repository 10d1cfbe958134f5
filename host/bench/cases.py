"""Inputs to compare engines on: pictures and sound where they fit, random and extreme values."""

from __future__ import annotations

import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_SMOOTH_STEP = 0.1
_FRAMES_PER_SECOND = 100


@dataclass(frozen=True)
class InputSpec:
    """One input of a model: a whole shape, batch first, and a NumPy dtype name."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Samples:
    """Real inputs: pictures uint8 [h, w, 3]; sounds as log spectra, float [frames, bins]."""

    pictures: tuple[Array, ...] = ()
    sounds: tuple[Array, ...] = ()


@dataclass(frozen=True)
class Cases:
    """`inputs[i]` stacks the i-th input of all calls; every `steps` calls start from reset."""

    inputs: tuple[Array, ...]
    steps: int

    def save(self, path: Path) -> None:
        np.savez(path, allow_pickle=False, **{f"in{i}": a for i, a in enumerate(self.inputs)})


def load_samples(pictures: Sequence[Path], sounds: Sequence[Path]) -> Samples:
    """Reads picture files (needs Pillow) and 16-bit mono .wav files."""
    from PIL import Image

    loaded = []
    for path in pictures:
        with Image.open(path) as picture:
            loaded.append(np.asarray(picture.convert("RGB")))
    return Samples(tuple(loaded), tuple(_log_spectra(path) for path in sounds))


def make_cases(
    specs: Sequence[InputSpec], count: int, samples: Samples, steps: int = 1, seed: int = 0
) -> Cases:
    """`count` sequences of `steps` calls; the same arguments give the same values."""
    rng = np.random.default_rng(seed)
    inputs = []
    for spec in specs:
        makers = _makers(spec, samples)
        calls = [makers[i % len(makers)](rng, steps) for i in range(count)]
        inputs.append(np.concatenate(calls))
    return Cases(tuple(inputs), steps)


_Maker = Callable[[np.random.Generator, int], Array]


def _makers(spec: InputSpec, samples: Samples) -> list[_Maker]:
    """Real inputs first, each maker giving [steps, *shape] of the input's dtype."""
    dtype = np.dtype(spec.dtype)
    low, high = _limits(dtype)
    shape = spec.shape

    def cast(values: Array) -> Array:
        return values.astype(dtype)

    def spread(unit: Array) -> Array:
        """0..1 to the whole range of the dtype."""
        return cast(np.round(low + unit * (high - low)) if dtype.kind in "iu" else unit)

    def picture(index: int, signed: bool) -> _Maker:
        pixels = _crop(samples.pictures[index], shape) / 255.0
        unit = pixels * 2 - 1 if signed and dtype.kind == "f" else pixels
        return lambda _rng, steps: np.repeat(spread(unit)[np.newaxis], steps, axis=0)

    def sound(index: int) -> _Maker:
        return lambda _rng, steps: spread(_windows(samples.sounds[index], shape, steps))

    def uniform(rng: np.random.Generator, steps: int) -> Array:
        return cast(rng.uniform(low, high, (steps, *shape)))

    def normal(rng: np.random.Generator, steps: int) -> Array:
        wide = rng.normal(0, (high - low) / 6, (steps, *shape)) + (high + low) / 2
        return cast(wide if dtype.kind == "f" else np.clip(np.round(wide), low, high))

    def constant(value: float) -> _Maker:
        return lambda _rng, steps: np.full((steps, *shape), value, dtype)

    def corners(rng: np.random.Generator, steps: int) -> Array:
        far = 100.0 if dtype.kind == "f" else 1.0
        return cast(far * rng.choice([low, high], (steps, *shape)))

    def smooth(rng: np.random.Generator, steps: int) -> Array:
        walk = rng.normal(0, _SMOOTH_STEP, (steps, *shape)).reshape(-1).cumsum()
        return spread(np.abs((walk + 1) % 2 - 1)).reshape(steps, *shape)

    real = [picture(i, s) for i in range(len(samples.pictures)) for s in (True, False)]
    if len(shape) != 4 or shape[-1] != 3:
        real = [sound(i) for i in range(len(samples.sounds))]
    made = [uniform, normal, smooth, corners, constant(low), constant(high), constant(0)]
    # Alternating, so that even a short list holds some of each kind.
    return [m for pair in zip(made, real, strict=False) for m in pair] + [
        *made[len(real) :],
        *real[len(made) :],
        uniform,
        normal,
    ]


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind == "f":
        return -1.0, 1.0
    return float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)


def _crop(picture: Array, shape: tuple[int, ...]) -> Array:
    """The picture's middle square, nearest neighbor, as [1, h, w, 3]."""
    height, width = shape[1:3]
    side = min(picture.shape[:2])
    top, left = (picture.shape[0] - side) // 2, (picture.shape[1] - side) // 2
    rows = top + np.arange(height) * side // height
    columns = left + np.arange(width) * side // width
    return picture[np.ix_(rows, columns)][np.newaxis]


def _log_spectra(path: Path) -> Array:
    """A 16-bit mono .wav as log power in 0..1, 100 frames per second."""
    with wave.open(str(path)) as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768.0
    hop = rate // _FRAMES_PER_SECOND
    frames = np.lib.stride_tricks.sliding_window_view(samples, 2 * hop)[::hop]
    power = np.abs(np.fft.rfft(frames * np.hanning(2 * hop), axis=1)) ** 2
    log = np.log10(power + 1e-6)
    unit: Array = (log - log.min()) / max(np.ptp(log), 1e-6)
    return unit


def _windows(spectra: Array, shape: tuple[int, ...], steps: int) -> Array:
    """`steps` inputs that follow one another through the spectra, [steps, *shape] in 0..1."""
    size = int(np.prod(shape))
    bins = shape[2] if len(shape) == 4 else shape[-1] if len(shape) == 3 else min(40, size)
    columns = np.arange(bins) * spectra.shape[1] // bins
    flat = spectra[:, columns].reshape(-1)
    return np.resize(flat, (steps, *shape))
