"""Converts WAV files to model inputs: mixed to one channel and divided into windows of one run.

The standard library's wave module supports neither floats nor, before Python 3.12, the extensible
header that many programs write; the few relevant fields are parsed here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.dtypes import count
from edgekit.host.compiler.inputs.options import InputOptions
from edgekit.host.compiler.inputs.real import as_input
from edgekit.host.errors import InputError

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_RATES = (1, 1_000_000)
_MOST_BYTES = 1 << 30
_COLORS = 3  # channels of a picture
_ENCODED = "input_features"  # of encoders of speech, as Optimum names it


@dataclass(frozen=True)
class _Format:
    code: int
    channels: int
    rate: int
    bits: int


def windows(
    path: Path, spec: TensorSpec, options: InputOptions, stateful: bool
) -> list[NDArray[Any]]:
    """Read a sound in the shape and dtype of `spec`: in full, as several windows, if the model is
    stateful, else only the first window. The end is padded with silence.

    Raises InputError if it is no WAV file, or its rate is not the model's.
    """
    size = count(spec.shape)
    if size < 2 or size != max(spec.shape, default=0):
        or_say = ", or say in a .toml file next to the model how they are computed of sound"
        if spec.name == _ENCODED:
            or_say = ", or put the decoder of this encoder next to it"
        raise InputError(
            f"{path}: expected an input of one row of samples, found '{spec.name}' of {spec.dtype} "
            f"{list(spec.shape)}; give its values as .npz{'' if _COLORS in spec.shape else or_say}"
        )
    samples, rate = _read(path)
    samples = _at_rate(path, samples, rate, options)
    total = max(1, -(-len(samples) // size)) if stateful else 1
    padded = np.zeros(total * size)
    padded[: len(samples)] = samples[: len(padded)]
    if spec.scale is None and spec.dtype in ("s8", "s16", "s32"):
        padded *= 1 << (8 * spec.bytes // size - 1)
    return [as_input(part, spec).reshape(spec.shape) for part in padded.reshape(total, size)]


def read_sound(path: Path, rate: int) -> NDArray[np.float64]:
    """Read a sound: samples from -1 to 1, mixed to one channel, at `rate`. Raises InputError if it
    is no WAV file."""
    samples, own = _read(path)
    return samples if own == rate else _resampled(samples, own, rate)


def _at_rate(
    path: Path, samples: NDArray[np.float64], rate: int, options: InputOptions
) -> NDArray[np.float64]:
    wanted = options.rate
    if wanted in (None, rate):
        return samples
    if not options.resample:
        raise InputError(
            f"{path}: expected {wanted} samples per second, found {rate}; convert it with "
            "--resample, or give the model's rate with --sample-rate"
        )
    assert wanted is not None
    return _resampled(samples, rate, wanted)


def _resampled(samples: NDArray[np.float64], rate: int, wanted: int) -> NDArray[np.float64]:
    length = max(1, round(len(samples) * wanted / rate))
    # Truncating or extending the spectrum loses nothing below both Nyquist frequencies.
    return np.fft.irfft(np.fft.rfft(samples)[: length // 2 + 1], length) * (length / len(samples))


def _read(path: Path) -> tuple[NDArray[np.float64], int]:
    """Return samples from -1 to 1, mixed to one channel, and the sample rate."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _format_error(path, f"more than {_MOST_BYTES} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise _format_error(path, str(error.strerror)) from None
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise _format_error(path, "another kind of file")
    form, body, at = None, None, 12
    while at + 8 <= len(data) and body is None:
        name, size = struct.unpack_from("<4sI", data, at)
        chunk = data[at + 8 : at + 8 + size]
        if name == b"fmt ":
            form = _parse_format(path, chunk)
        elif name == b"data":
            body = chunk
        at += 8 + size + size % 2
    if form is None or body is None:
        raise _format_error(path, "no sound in it")
    frames = len(body) * 8 // (form.bits * form.channels)
    if not frames:
        raise _format_error(path, "no samples in it")
    values = _decode_samples(path, body[: frames * form.channels * form.bits // 8], form)
    return values.reshape(frames, form.channels).mean(axis=1), form.rate


def _parse_format(path: Path, chunk: bytes) -> _Format:
    if len(chunk) < 16:
        raise _format_error(path, "a truncated header")
    code, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
    if code == _EXTENSIBLE and len(chunk) >= 26:
        (code,) = struct.unpack_from("<H", chunk, 24)
    if bits not in (8, 16, 24, 32, 64):
        raise _format_error(path, f"samples of {bits} bits")
    if not (1 <= channels <= 64 and _RATES[0] <= rate <= _RATES[1]):
        raise _format_error(path, f"{channels} channels at {rate} samples per second")
    return _Format(code, channels, rate, bits)


def _decode_samples(path: Path, body: bytes, form: _Format) -> NDArray[np.float64]:
    if form.code == _FLOAT and form.bits in (32, 64):
        values = np.frombuffer(body, f"<f{form.bits // 8}").astype(np.float64)
        if not np.isfinite(values).any():
            raise _format_error(path, "no finite sample in it")
        return np.nan_to_num(values, posinf=1.0, neginf=-1.0)
    if form.code == _PCM and form.bits == 8:
        return (np.frombuffer(body, np.uint8).astype(np.float64) - 128) / 128
    if form.code == _PCM and form.bits in (16, 32):
        scale = 1 << (form.bits - 1)
        return np.frombuffer(body, f"<i{form.bits // 8}").astype(np.float64) / scale
    if form.code == _PCM and form.bits == 24:
        bytes_ = np.frombuffer(body, np.uint8).reshape(-1, 3)
        wide = np.zeros((len(bytes_), 4), np.uint8)
        wide[:, 1:] = bytes_
        return wide.view("<i4").reshape(-1).astype(np.float64) / (1 << 31)
    raise _format_error(path, f"format {form.code} of {form.bits} bits")


def _format_error(path: Path, found: str) -> InputError:
    return InputError(
        f"{path}: expected a WAV file of 8, 16, 24 or 32 bits or floats, found {found}; "
        "save it as 16-bit PCM"
    )
