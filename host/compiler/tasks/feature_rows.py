"""Features of sound, row by row: logarithms of mel bands, or MFCC, as operators on samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.log_mel import LogMel, mel_weights

RATE = 16000
HANN, POVEY = "hann", "povey"
HTK, SLANEY, SPEECH_BRAIN = "htk", "slaney", "speechbrain"
MELS = (HTK, SLANEY, SPEECH_BRAIN)  # scales of bands
_LEAST_DEVIATION = 1e-5  # as NeMo adds it
_LEAST_PEAK = 1 / 32768
_POVEY_POWER = 0.85
# The curve along n samples; those of Kaldi end as they begin.
CURVES: dict[str, Callable[[int], Any]] = {
    HANN: lambda n: 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / n),
    "hanning": np.hanning,
    "hamming": np.hamming,
    POVEY: lambda n: np.hanning(n) ** _POVEY_POWER,
    "periodic-hamming": lambda n: np.hamming(n + 1)[:n],
}


@dataclass(frozen=True)
class Features:
    """Rows of `coefficients` (MFCC), or of `bands` if these are 0 (logarithms of mel bands).

    A row is of `window` samples, `step` samples after the last one, by which a `curve` is
    multiplied. Its spectrum of `fft` points, to the `power` (1 or 2), is summed in mel bands
    between `low` and `high` Hz; `offset` is added before the logarithm, unless the sums are at
    least `floor`. With `peak`, samples are divided by the largest first. `last`: the last window
    ends where the sound does.

    As Kaldi has them: samples are multiplied by `gain`; with `centered`, the mean of a window is
    subtracted, and then `emphasis` times the sample before from each; with `mirrored`, a window is
    around the middle of each step, and the ends of the sound are mirrored; with `level`, each
    number has the mean 0 along the rows; with `hushed`, rows of nothing but zeros, as behind the
    end of a sound, are 0. Rows of the model are `stack` of these, each `skip` rows after the last.

    As NeMo and SpeechBrain have them: with `around`, a window is around the beginning of each step,
    with zeros where there is no sound, and `emphasis` is of the whole sound; bands are those of
    `mel`, one of MELS; no logarithm is more than `range` below the largest, unless that is 0; with
    `deviation`, each number has the mean 0 and the deviation 1 along the rows that are not of
    zeros, which are 0.
    """

    rate: int = RATE
    window: int = 480
    step: int = 160
    fft: int = 512
    bands: int = 40
    low: float = 20.0
    high: float = 4000.0
    coefficients: int = 0
    power: int = 1
    offset: float = 1e-6
    peak: bool = False
    last: bool = False
    labels: tuple[str, ...] = ()
    curve: str = HANN
    floor: float = 0.0
    gain: float = 1.0
    centered: bool = False
    emphasis: float = 0.0
    mirrored: bool = False
    level: bool = False
    hushed: bool = False
    stack: int = 1
    skip: int = 1
    around: bool = False
    mel: str = HTK
    range: float = 0.0
    deviation: bool = False

    @property
    def width(self) -> int:
        return (self.coefficients or self.bands) * self.stack

    def windows(self, rows: int) -> int:
        """So many rows of the model are stacked of so many windows."""
        return self.stack + (rows - 1) * self.skip

    def samples(self, rows: int) -> int:
        """That many rows are computed of so many samples."""
        count = self.windows(rows)
        whole = self.mirrored or self.around
        return count * self.step if whole else self.window + (count - 1) * self.step


def feature_rows(to: Appender, samples: str, rows: int, f: Features) -> str:
    """Appends what computes them: f32 [rows, width]."""
    x, one, count = samples, (1, 1), f.windows(rows)
    if f.peak:
        peak = to.add(ops.Reshape(one), to.add(ops.ReduceMax((1,)), x))
        peak = to.add(ops.Maximum(), peak, to.constant(np.full(one, _LEAST_PEAK)))
        x = to.add(ops.Div(), x, peak)
    x = _mirrored(to, x, count, f) if f.mirrored else x
    if f.around:
        x, f = _between_zeros(to, _emphasized(to, x, f), count, f), replace(f, emphasis=0.0)
    mel = _BANDS[f.mel](f)
    used = np.flatnonzero(mel.any(1))  # lines of the spectrum that are in a band
    mel = mel[used]
    waves = _waves(f, used)
    image = to.add(ops.Reshape((1, 1, to.shape(x)[1], 1)), x)
    filters = to.constant(waves[:, None, :, None])
    none = to.constant(np.zeros(len(waves)))
    parts = to.add(ops.Conv2D(stride=(1, f.step)), image, filters, none)
    squares = to.add(ops.Mul(), parts, parts)
    real, imaginary = to.add_all(ops.Split(3, (len(used), len(used))), squares)
    spectrum = to.add(ops.Reshape((count, len(used))), to.add(ops.Add(), real, imaginary))
    if f.power == 1:
        spectrum = to.add(ops.Sqrt(), spectrum)
    bands = to.add(ops.MatMul(), spectrum, to.constant(mel))
    made = _logarithms(to, bands, f)
    if f.hushed:
        zero = to.constant(np.zeros(one))
        made = to.add(ops.Where(), _sounds(to, bands), made, zero)
    if f.range:
        loudest = to.add(ops.Reshape(one), to.add(ops.ReduceMax((0, 1)), made))
        least = to.add(ops.Sub(), loudest, to.constant(np.full(one, f.range)))
        made = to.add(ops.Maximum(), made, least)
    if f.coefficients:
        angles = np.outer(np.arange(f.bands) + 0.5, np.arange(f.coefficients)) * np.pi / f.bands
        made = to.add(ops.MatMul(), made, to.constant(np.cos(angles) * np.sqrt(2 / f.bands)))
    if f.level:
        mean = to.add(ops.ReduceSum((0,), keep_dims=True), made)
        mean = to.add(ops.Mul(), mean, to.constant(np.full(one, 1 / count)))
        made = to.add(ops.Sub(), made, mean)
    if f.deviation:
        made = _of_deviation_1(to, made, _sounds(to, bands))
    if f.windows(rows) == rows:
        return made
    order = np.arange(rows)[:, None] * f.skip + np.arange(f.stack)
    made = to.add(ops.Gather(0), made, to.constant(order.ravel(), DType.I32))
    return to.add(ops.Reshape((rows, f.width)), made)


def _sounds(to: Appender, bands: str) -> str:
    """Whether a row is of anything but zeros, [rows, 1]."""
    loudest = to.add(ops.ReduceMax((1,), keep_dims=True), bands)
    return to.add(ops.Less(), to.constant(np.zeros((1, 1))), loudest)


def _of_deviation_1(to: Appender, rows: str, sounds: str) -> str:
    one, zero = (to.constant(np.full((1, 1), value)) for value in (1, 0))
    counts = to.add(ops.Where(), sounds, one, zero)
    count = to.add(ops.ReduceSum((0,), keep_dims=True), counts)
    count = to.add(ops.Maximum(), count, to.constant(np.full((1, 1), 2)))
    total = to.add(ops.ReduceSum((0,), keep_dims=True), to.add(ops.Mul(), rows, counts))
    centered = to.add(ops.Sub(), rows, to.add(ops.Div(), total, count))
    centered = to.add(ops.Mul(), centered, counts)
    squares = to.add(ops.ReduceSum((0,), keep_dims=True), to.add(ops.Mul(), centered, centered))
    variance = to.add(ops.Div(), squares, to.add(ops.Sub(), count, one))
    least = to.constant(np.full((1, 1), _LEAST_DEVIATION))
    return to.add(ops.Div(), centered, to.add(ops.Add(), to.add(ops.Sqrt(), variance), least))


def _logarithms(to: Appender, bands: str, f: Features) -> str:
    """Samples are not multiplied, but the logarithms are larger, so that no number is large."""
    one, factor = (1, 1), f.gain**f.power
    if f.floor:
        least = to.constant(np.full(one, max(f.floor / factor, float(np.finfo(np.float32).tiny))))
        made = to.add(ops.Log(), to.add(ops.Maximum(), bands, least))
    else:
        offset = to.constant(np.full(one, f.offset / factor))
        made = to.add(ops.Log(), to.add(ops.Add(), bands, offset))
    if factor == 1:
        return made
    return to.add(ops.Add(), made, to.constant(np.full(one, np.log(factor))))


def _waves(f: Features, used: Array) -> Array:
    """What a window is multiplied by for the parts of its spectrum [2 lines, window]. All that is
    done to it before is linear, too."""
    turns = 2 * np.pi * np.outer(used, np.arange(f.window)) / f.fft
    waves: Array = np.concatenate([np.cos(turns), np.sin(turns)]) * CURVES[f.curve](f.window)
    if f.emphasis:
        later = np.concatenate([waves[:, 1:], np.zeros((len(waves), 1))], 1)
        later[:, 0] += waves[:, 0]  # the first sample is also the one before
        waves = waves - f.emphasis * later
    return waves - waves.mean(1, keepdims=True) if f.centered else waves


def _mirrored(to: Appender, x: str, count: int, f: Features) -> str:
    """The samples with those before and after them that the first and last window reach."""
    last = f.step * count - 1
    before = (f.window - f.step) // 2
    after = f.window - f.step - before
    places = (np.arange(before - 1, -1, -1), np.arange(last, last - after, -1))
    first, end = (to.add(ops.Gather(1), x, to.constant(p, DType.I32)) for p in places)
    return to.add(ops.Concat(1), first, x, end)


def _emphasized(to: Appender, x: str, f: Features) -> str:
    """Each sample without `emphasis` times the one before: of the whole sound, not a window."""
    if not f.emphasis:
        return x
    before, _ = to.add_all(ops.Split(1, (to.shape(x)[1] - 1, 1)), x)
    before = to.add(ops.Concat(1), to.constant(np.zeros((1, 1))), before)
    share = to.constant(np.full((1, 1), f.emphasis))
    return to.add(ops.Sub(), x, to.add(ops.Mul(), before, share))


def _between_zeros(to: Appender, x: str, count: int, f: Features) -> str:
    before = f.window // 2
    after = max((count - 1) * f.step + f.window - before - to.shape(x)[1], 0)
    first, end = (to.constant(np.zeros((1, n))) for n in (before, after))
    return to.add(ops.Concat(1), first, x, *([end] if after else []))


def mel_bands(f: Features) -> Array:
    """Weights of triangular bands, equally wide in mel [lines, bands], without the constant line
    (TensorFlow's linear_to_mel_weight_matrix)."""
    lines = _mel(np.linspace(0, f.rate / 2, f.fft // 2 + 1))[1:, None]
    edges = np.linspace(_mel(f.low), _mel(f.high), f.bands + 2)
    low, center, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (lines - low) / (center - low), (high - lines) / (high - center)
    bands = np.maximum(0, np.minimum(rising, falling))
    return np.concatenate([np.zeros((1, f.bands)), bands])


def _even_bands(f: Features) -> Array:
    """Weights of triangular bands, which are as wide on both sides (SpeechBrain's Filterbank)."""
    edges = 700 * np.expm1(np.linspace(_mel(f.low), _mel(f.high), f.bands + 2) / 1127)
    lines = np.linspace(0, f.rate / 2, f.fft // 2 + 1)[:, None]
    slopes = (lines - edges[1:-1]) / np.diff(edges)[:-1]
    found: Array = np.maximum(0, 1 - np.abs(slopes))
    return found


_BANDS: dict[str, Callable[[Features], Array]] = {
    HTK: mel_bands,
    SLANEY: lambda f: mel_weights(LogMel(f.rate, 0, f.bands, f.fft, f.step)),
    SPEECH_BRAIN: _even_bands,
}


def _mel(hertz: Any) -> Any:
    return 1127 * np.log1p(np.asarray(hertz) / 700)
