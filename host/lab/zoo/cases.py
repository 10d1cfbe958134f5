"""Inputs for comparing engines: pictures and sound where they fit, random and extreme values."""

from __future__ import annotations

import itertools
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
    """One input of a model: a fully specified shape, batch first, and a NumPy dtype name."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ZooInputs:
    """Real inputs: pictures uint8 [h, w, 3]; sounds as log spectra, float [frames, bins];
    sequences of calls for a particular model, [calls, *shape] in its dtype.
    """

    pictures: tuple[Array, ...] = ()
    sounds: tuple[Array, ...] = ()
    sequences: tuple[Array, ...] = ()


@dataclass(frozen=True)
class Cases:
    """`inputs[i]` stacks the i-th input of all calls; state is reset every `steps` calls."""

    inputs: tuple[Array, ...]
    steps: int

    def save(self, path: Path) -> None:
        np.savez(path, allow_pickle=False, **{f"in{i}": a for i, a in enumerate(self.inputs)})


def load_samples(
    pictures: Sequence[Path], sounds: Sequence[Path], sequences: Sequence[Path] = ()
) -> ZooInputs:
    """Reads picture files (needs Pillow), 16-bit mono .wav files and .npz files with in0."""
    from PIL import Image

    loaded = []
    for path in pictures:
        with Image.open(path) as picture:
            loaded.append(np.asarray(picture.convert("RGB")))
    recorded = []
    for path in sequences:
        with np.load(path, allow_pickle=False) as stored:
            recorded.append(stored["in0"])
    spectra = tuple(_log_spectra(path) for path in sounds)
    return ZooInputs(tuple(loaded), spectra, tuple(recorded))


def make_cases(
    specs: Sequence[InputSpec], count: int, samples: ZooInputs, steps: int = 1, seed: int = 0
) -> Cases:
    """`count` sequences of `steps` calls; deterministic for given arguments."""
    rng = np.random.default_rng(seed)
    inputs = []
    for spec in specs:
        fixed = _fixed_inputs(spec, samples)
        varied = itertools.cycle(_varied_inputs(spec, samples))
        # Alternate, so that even a short list has some of each kind.
        both = [maker for one in fixed for maker in (next(varied), one)]
        makers = itertools.chain(both, varied)
        calls = [make(rng, steps) for make in itertools.islice(makers, count)]
        inputs.append(np.concatenate(calls))
    return Cases(tuple(inputs), steps)


_Maker = Callable[[np.random.Generator, int], Array]


def _fixed_inputs(spec: InputSpec, samples: ZooInputs) -> list[_Maker]:
    """A maker per sequence, picture and constant; each returns [steps, *shape] of its dtype."""
    dtype = np.dtype(spec.dtype)
    fitting = [s for s in samples.sequences if (s.shape[1:], s.dtype) == (spec.shape, dtype)]
    values: list[Array] = []
    if len(spec.shape) == 4 and spec.shape[-1] == 3:
        for picture in samples.pictures:
            unit = _crop_center(picture, spec.shape) / 255.0
            values.append(_scale_to_dtype(unit, dtype))
            if dtype.kind == "f":
                values.append((unit * 2 - 1).astype(dtype))
    constants = dict.fromkeys((*_value_limits(dtype), 0.0))
    values += [np.full(spec.shape, value, dtype) for value in constants]

    def repeat(value: Array) -> _Maker:
        return lambda _rng, steps: np.repeat(value[np.newaxis], steps, axis=0)

    def replay(sequence: Array) -> _Maker:
        return lambda _rng, steps: np.resize(sequence, (steps, *spec.shape))

    return [*map(replay, fitting), *map(repeat, values)]


def _varied_inputs(spec: InputSpec, samples: ZooInputs) -> list[_Maker]:
    """Makers that return different values each time."""
    dtype = np.dtype(spec.dtype)
    low, high = _value_limits(dtype)
    shape = spec.shape

    def uniform(rng: np.random.Generator, steps: int) -> Array:
        return _scale_to_dtype(rng.random((steps, *shape)) * 2 - 1, dtype, signed=True)

    def normal(rng: np.random.Generator, steps: int) -> Array:
        wide = rng.normal(0, 1 / 3, (steps, *shape))
        return _scale_to_dtype(
            wide if dtype.kind == "f" else np.clip(wide, -1, 1), dtype, signed=True
        )

    def corners(rng: np.random.Generator, steps: int) -> Array:
        corner: Array = rng.choice([low, high], (steps, *shape)).astype(dtype)
        return corner

    def smooth(rng: np.random.Generator, steps: int) -> Array:
        walk = rng.normal(0, _SMOOTH_STEP, (steps, *shape)).reshape(-1).cumsum()
        return _scale_to_dtype(np.abs((walk + 1) % 2 - 1), dtype).reshape(steps, *shape)

    def sound(spectra: Array) -> _Maker:
        def make(rng: np.random.Generator, steps: int) -> Array:
            start = int(rng.integers(len(spectra) // 2))
            return _scale_to_dtype(_sliding_windows(spectra[start:], shape, steps), dtype)

        return make

    if len(shape) == 4 and shape[-1] == 3:
        return [uniform, normal, corners, smooth]
    return [uniform, *map(sound, samples.sounds), normal, corners, smooth]


def _scale_to_dtype(unit: Array, dtype: np.dtype[Any], signed: bool = False) -> Array:
    """Scales 0..1 (signed: -1..1) to the full range of an integer dtype; floats are unchanged."""
    if dtype.kind == "f":
        return unit.astype(dtype)
    low, high = _value_limits(dtype)
    share = (unit + 1) / 2 if signed else unit
    values: Array = np.round(low + share * (high - low)).astype(dtype)
    return values


def _value_limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind == "f":
        return -1.0, 1.0
    return float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)


def _crop_center(picture: Array, shape: tuple[int, ...]) -> Array:
    """The picture's central square, nearest neighbor, as [1, h, w, 3]."""
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


def _sliding_windows(spectra: Array, shape: tuple[int, ...], steps: int) -> Array:
    """`steps` consecutive inputs sliding through the spectra, [steps, *shape] in 0..1."""
    size = int(np.prod(shape))
    bins = shape[2] if len(shape) == 4 else shape[-1] if len(shape) == 3 else min(40, size)
    columns = np.arange(bins) * spectra.shape[1] // bins
    flat = spectra[:, columns].reshape(-1)
    return np.resize(flat, (steps, *shape))
