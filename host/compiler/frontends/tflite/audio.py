"""Import of TensorFlow Lite's audio front-end operators: spectrograms and MFCCs."""

from __future__ import annotations

import math

import numpy as np

from edgekit.host.compiler.frontends.tflite.call import TfliteCall
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_dtype, need_rank
from edgekit.host.compiler.ir.types import Array, DType, ShapeError, Tensor

_LONGEST = 4096  # samples per window
_MOST = 1024  # bands or coefficients
_FLOOR = 1e-12  # minimum band energy before taking the logarithm


def audio_spectrogram(call: TfliteCall) -> Tensor:
    """Samples [n, channels] → magnitudes (or their squares) [channels, windows, points / 2 + 1].

    Windows are Hann's; the transform length is the next power of two.
    """
    x = call.tensor(0, "samples")
    need_rank(x, 2, "samples")
    need_dtype(x, (DType.F32,), "samples")
    window = call.custom_whole("window_size", 1, _LONGEST)
    stride = call.custom_whole("stride", 1, 1 << 30)
    samples, channels = x.shape
    if not 2 <= window <= samples:
        raise ShapeError(f"expected a window of 2 to {samples} samples, found {window}")
    points = 1 << (window - 1).bit_length()
    hann = 0.5 - 0.5 * np.cos(2 * math.pi / window * np.arange(window))
    rows = call.reshape(call.transpose(x, (1, 0)), (channels, samples, 1))
    op = ops.Fourier(points, window, stride, onesided=True)
    both = call.emit(op, rows, call.constant(hann.astype(np.float32)))
    energy = call.emit(ops.ReduceSum((3,)), call.emit(ops.Mul(), both, both))
    squared = bool(call.custom_number("magnitude_squared", 0))
    return energy if squared else call.emit(ops.Sqrt(), energy)


def mfcc(call: TfliteCall) -> Tensor:
    """Squared magnitudes [channels, windows, points] → mel-frequency cepstral coefficients."""
    x, rate = call.tensor(0, "spectrogram"), call.integer(1, "sample rate")
    need_rank(x, 3, "spectrogram")
    need_dtype(x, (DType.F32,), "spectrogram")
    count = call.custom_whole("filterbank_channel_count", 1, _MOST, 40)
    kept = call.custom_whole("dct_coefficient_count", 1, count, 13)
    low = call.custom_number("lower_frequency_limit", 20)
    high = call.custom_number("upper_frequency_limit", 4000)
    if x.shape[2] < 2 or not (0 <= low < high <= rate / 2 and rate < 1 << 24):
        raise ShapeError(
            f"expected frequencies from 0 to half the sample rate, found {low} to {high} at {rate}"
        )
    call.builder.need_room((count, x.shape[2]), np.float32)
    bands = call.constant(_mel_bands(x.shape[2], rate, count, low, high).astype(np.float32))
    energy = call.emit(ops.FullyConnected(True), call.emit(ops.Sqrt(), x), bands, None)
    energy = call.emit(ops.Maximum(), energy, call.scalar(_FLOOR, energy))
    turns = np.outer(np.arange(kept), np.arange(count) + 0.5)
    cosines = math.sqrt(2 / count) * np.cos(math.pi / count * turns)
    coefficients = call.constant(cosines.astype(np.float32))
    return call.emit(ops.FullyConnected(True), call.emit(ops.Log(), energy), coefficients, None)


def _mel_bands(points: int, rate: int, count: int, low: float, high: float) -> Array:
    """Triangular filters [count, points], evenly spaced on the mel scale, excluding the DC bin."""
    hertz = 0.5 * rate / (points - 1)
    first, last = int(1.5 + low / hertz), min(int(high / hertz), points - 1)
    edges = np.linspace(_hertz_to_mel(low), _hertz_to_mel(high), count + 2)
    bands = np.zeros((count + 2, points))
    for i in range(first, last + 1):
        mel = _hertz_to_mel(i * hertz)
        left = min(max(int(np.searchsorted(edges, mel)) - 1, 0), count)
        falling = (edges[left + 1] - mel) / (edges[left + 1] - edges[left])
        bands[left, i], bands[left + 1, i] = falling, 1 - falling
    return bands[1:-1]


def _hertz_to_mel(hertz: float) -> float:
    return 1127 * math.log1p(hertz / 700)
