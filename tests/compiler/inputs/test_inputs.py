"""User files as model inputs: pictures, sound, arrays, folders."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.host.compiler.inputs import (
    InputOptions,
    PixelFrames,
    fitted,
    input_files,
    read_arrays,
    read_inputs,
)
from edgekit.host.compiler.inputs.metadata import InputNotes
from edgekit.host.compiler.inputs.pictures import picture
from edgekit.host.compiler.inputs.sound import windows
from edgekit.host.errors import InputError

Image = pytest.importorskip("PIL.Image")

NHWC = TensorSpec("x", "f32", (1, 2, 5, 3), None, None)
NCHW = TensorSpec("x", "f32", (1, 3, 2, 5), None, None)
PLAIN = InputOptions(mean=(0.0,), scale=(1.0,))
PIXELS = np.arange(30, dtype=np.uint8).reshape(2, 5, 3) * 8


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    Image.fromarray(PIXELS).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def test_a_picture_in_either_layout_and_order(photo: Path) -> None:
    np.testing.assert_array_equal(picture(photo, NHWC, PLAIN)[0], PIXELS)
    np.testing.assert_array_equal(picture(photo, NCHW, PLAIN)[0], PIXELS.transpose(2, 0, 1))
    bgr = InputOptions(mean=(0.0,), scale=(1.0,), channels="bgr")
    np.testing.assert_array_equal(picture(photo, NHWC, bgr)[0], PIXELS[..., ::-1])


def test_options_for_scaling_pixels_override_the_model(photo: Path) -> None:
    notes = InputNotes((127.5,), (127.5,))
    for options, expected in (
        (InputOptions(), PIXELS / 255),
        (InputOptions(notes=notes), PIXELS / 127.5 - 1),
        (InputOptions(mean=(1.0, 2.0, 3.0), notes=notes), (PIXELS - [1, 2, 3]) / 127.5),
        (InputOptions(mean=(10.0,), scale=(2.0,)), (PIXELS - 10.0) / 2),
    ):
        np.testing.assert_allclose(picture(photo, NHWC, options)[0], expected, atol=1e-6)
    with pytest.raises(InputError, match=r"a mean of 1 or 3 nonzero numbers, found 1, 2"):
        picture(photo, NHWC, InputOptions(mean=(1.0, 2.0), scale=(1.0,)))


def test_quantized_values_follow_scale_and_zero_point(photo: Path) -> None:
    s8 = TensorSpec("x", "s8", NHWC.shape, 1 / 128, 0)
    u8 = TensorSpec("x", "u8", NHWC.shape, 1 / 255, 0)
    np.testing.assert_array_equal(picture(photo, u8, InputOptions())[0], PIXELS)
    np.testing.assert_array_equal(picture(photo, s8, InputOptions())[0], PIXELS.astype(int) - 128)
    found = picture(photo, s8, InputOptions(mean=(128.0,), scale=(128.0,)))[0]
    np.testing.assert_array_equal(found, PIXELS.astype(int) - 128)


def test_a_picture_is_resized_made_gray_and_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    lying = Image.new("RGB", (40, 20))
    lying.paste((255, 255, 255), (0, 0, 20, 20))
    lying.save(tmp_path / "lying.jpg", exif=exif, quality=95)
    spec = TensorSpec("x", "f32", (1, 8, 4, 1), None, None)
    found = picture(tmp_path / "lying.jpg", spec, InputOptions())[0, :, :, 0]
    assert found[0].min() > 0.9 and found[-1].max() < 0.1


# A header of 124 bytes that says nothing: Pillow does not expect its format of pixels.
_DDS = b"DDS " + (124).to_bytes(4, "little") + bytes(120)


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n", b"GIF89a", _DDS])
def test_an_invalid_picture_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.png: expected a picture that Pillow reads, found"):
        picture(tmp_path / "x.png", NHWC, InputOptions())


def test_a_truncated_picture_is_one_line(photo: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(photo)
    photo.write_bytes(photo.read_bytes()[:6000])
    with pytest.raises(InputError, match="expected a picture"):
        picture(photo, NHWC, InputOptions())


@pytest.mark.parametrize("spec", [NHWC, NCHW], ids=["nhwc", "nchw"])
def test_pixels_of_a_stream_become_what_a_picture_becomes(photo: Path, spec: TensorSpec) -> None:
    frames = PixelFrames([spec], PLAIN)
    assert (frames.bytes, *frames.extents.values()) == (PIXELS.size, *PIXELS.shape[:2])
    found = frames.inputs(PIXELS.astype(np.uint8).tobytes())
    np.testing.assert_array_equal(found[spec.name], picture(photo, spec, PLAIN))


def test_an_input_that_is_no_picture(photo: Path) -> None:
    for shape in ((4,), (1, 7, 5, 9), (2, 4, 4, 3), (1, 3, 40), (40, 3, 1), (3, 1, 40)):
        with pytest.raises(InputError, match="expected an input of one picture"):
            picture(photo, TensorSpec("x", "f32", shape, None, None), InputOptions())


@pytest.mark.parametrize(
    ("shape", "layout"), [((1, 28, 28), None), ((9, 8, 3), None), ((3, 2, 5), "nchw")]
)
def test_a_picture_of_three_axes(photo: Path, shape: Any, layout: Any) -> None:
    spec = TensorSpec("x", "f32", shape, None, None)
    assert picture(photo, spec, InputOptions(layout=layout)).shape == shape


def wav(
    file: Path, samples: Any, code: int = 1, bits: int = 16, channels: int = 1, extra: bytes = b""
) -> Path:
    """Encode samples from -1 to 1 as a WAV file at 8000 Hz."""
    values = np.asarray(samples, np.float64)
    if code == 3:
        body = values.astype(f"<f{bits // 8}").tobytes()
    elif bits == 8:
        body = (values * 127 + 128).astype(np.uint8).tobytes()
    else:
        whole = np.round(values * (2 ** (bits - 1) - 1)).astype("<i8")
        body = whole.view(np.uint8).reshape(-1, 8)[:, : bits // 8].tobytes()
    size = channels * bits // 8
    form = struct.pack("<HHIIHH", code, channels, 8000, 8000 * size, size, bits) + extra
    chunks = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    chunks += b"fmt " + struct.pack("<I", len(form)) + form
    chunks += b"data" + struct.pack("<I", len(body)) + body
    file.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)
    return file


SAMPLES = [0.5, -0.5, 0.25, 0.0]
FOUR = TensorSpec("x", "f32", (1, 4), None, None)
_EXTENSIBLE = struct.pack("<HHIH", 22, 24, 4, 1) + bytes(14)


@pytest.mark.parametrize(
    ("code", "bits"), [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64), (0xFFFE, 24)]
)
def test_sound_of_every_width(tmp_path: Path, code: int, bits: int) -> None:
    file = wav(tmp_path / "x.wav", SAMPLES, code, bits, extra=_EXTENSIBLE if code > 3 else b"")
    (found,) = windows(file, FOUR, InputOptions(), stateful=False)
    np.testing.assert_allclose(found, [SAMPLES], atol=1 / 64)


def test_sound_is_mixed_cut_and_padded(tmp_path: Path) -> None:
    file = wav(tmp_path / "x.wav", [0.2, 0.4, 0.6, 0.8, 0.1, 0.3], channels=2)
    (found,) = windows(file, FOUR, InputOptions(), stateful=False)
    np.testing.assert_allclose(found, [[0.3, 0.7, 0.2, 0]], atol=1e-3)
    ten = wav(tmp_path / "y.wav", np.arange(10) / 10)
    assert len(windows(ten, FOUR, InputOptions(), stateful=False)) == 1
    parts = windows(ten, FOUR, InputOptions(), stateful=True)
    flat = np.concatenate([part.reshape(-1) for part in parts])
    np.testing.assert_allclose(flat, [*np.arange(10) / 10, 0, 0], atol=1e-3)
    stored = TensorSpec("x", "s8", (4,), 1 / 128, 0)
    (found,) = windows(wav(tmp_path / "z.wav", SAMPLES), stored, InputOptions(), stateful=False)
    np.testing.assert_array_equal(found, [64, -64, 32, 0])


def test_another_sample_rate_is_refused_unless_it_may_be_converted(tmp_path: Path) -> None:
    tone = np.sin(np.arange(800) * 2 * np.pi * 100 / 8000)
    file = wav(tmp_path / "x.wav", tone)
    wide = TensorSpec("x", "f32", (1600,), None, None)
    with pytest.raises(InputError, match="expected 16000 samples per second, found 8000"):
        windows(file, wide, InputOptions(sample_rate=16000), stateful=False)
    options = InputOptions(notes=InputNotes(sample_rate=16000), resample=True)
    (found,) = windows(file, wide, options, stateful=False)
    np.testing.assert_allclose(found, np.sin(np.arange(1600) * np.pi / 80), atol=0.01)


@pytest.mark.parametrize("cut", [0, 3, 11, 30, 43, 55])
def test_damaged_sound_is_one_line(tmp_path: Path, cut: int) -> None:
    file = wav(tmp_path / "x.wav", SAMPLES)
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(InputError, match=r"x\.wav: expected a WAV file .* found"):
        windows(file, FOUR, InputOptions(), stateful=False)


@pytest.mark.parametrize(("code", "bits"), [(1, 12), (2, 16), (1, 0), (3, 16)])
def test_sound_of_another_format_is_one_line(tmp_path: Path, code: int, bits: int) -> None:
    file = wav(tmp_path / "x.wav", SAMPLES)
    data = bytearray(file.read_bytes())
    at = data.index(b"fmt ") + 8
    struct.pack_into("<H", data, at, code)
    struct.pack_into("<H", data, at + 14, bits)
    file.write_bytes(data)
    with pytest.raises(InputError, match="expected a WAV file of 8, 16, 24 or 32 bits or floats"):
        windows(file, FOUR, InputOptions(), stateful=False)


@pytest.mark.parametrize(
    ("values", "dtype", "scale", "reason"),
    [
        ([300.0, 1.0], "u8", None, "values from 1 to 300 do not fit into 0 to 255"),
        ([0.5, 1.0], "s32", None, "values with fractions"),
        ([np.nan, 1.0], "s32", None, "values from nan to nan"),
        ([-1, 1], "u8", None, "values from -1 to 1 do not fit"),
        ([0.5, 1.0], "s8", 0.5, r"quantized; .* round\(x / 0.5 \+ 3\)"),
        ([1e39, 1.0], "f32", None, "values beyond 3.403e"),
        ([2**24 + 1, 1], "f32", None, "integers that floats"),
        ([1j, 1.0], "f32", None, "not numbers"),
        ([2, 1], "bool", None, "values from 1 to 2 do not fit into 0 to 1"),
    ],
)
def test_conversions_that_change_values_are_refused_with_the_reason(
    values: list[Any], dtype: str, scale: float | None, reason: str
) -> None:
    spec = TensorSpec("x", dtype, (2,), scale, 3 if scale else None)
    with pytest.raises(InputError, match=reason):
        fitted({"x": np.array(values)}, [spec])


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([1.5, np.inf], "f32"), ([7, -8], "s32"), ([True, False], "f32"), ([2.0, 3.0], "s64")],
)
def test_conversions_that_keep_values_are_made(values: list[Any], dtype: str) -> None:
    spec = TensorSpec("x", dtype, (2,), None, None)
    found = fitted({"x": np.array(values)}, [spec])["x"]
    np.testing.assert_array_equal(found, values)


@dataclass(frozen=True)
class _Takes:
    """A model that takes two floats under each name."""

    names: tuple[str, ...]
    signature: str = ""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(name, "f32", (1, 2), None, None) for name in self.names)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {spec.name: spec.shape for spec in self.inputs}


def test_a_single_array_fits_the_only_input_whatever_its_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", in0=np.ones((1, 2), np.float32))
    one, two = _Takes(("image",)), _Takes(("image", "size"))
    assert read_inputs(tmp_path / "x.npz", [one], PLAIN)[0]["image"].tolist() == [[1.0, 1.0]]
    with pytest.raises(InputError, match=r"x.npz: expected inputs image, size, found in0"):
        read_inputs(tmp_path / "x.npz", [two], PLAIN)


def test_files_of_a_folder_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("10.png", "2.png", "b1.npz", "B02.npz", "README", ".hidden.png"):
        (tmp_path / name).touch()
    assert [p.name for p in input_files(tmp_path)] == ["2.png", "10.png", "b1.npz", "B02.npz"]
    (tmp_path / "empty").mkdir()
    for path, found in ((tmp_path / "empty", "found 0"), (tmp_path / "none", "nothing there")):
        with pytest.raises(InputError, match=found):
            input_files(path)


# Encrypted, another compression, damaged data.
@pytest.mark.parametrize(("place", "byte"), [(6, 1), (8, 9), (60, 0xFF)])
def test_a_damaged_archive_is_one_line(tmp_path: Path, place: int, byte: int) -> None:
    np.savez_compressed(tmp_path / "x.npz", a=np.arange(30.0))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    for start in (data.index(b"PK\3\4"), data.index(b"PK\1\2") + 2):
        data[start + place] = byte
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(InputError, match="plain arrays, found something else"):
        read_arrays(tmp_path / "x.npz")


def test_a_damaged_array_is_one_line(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3.0))
    data = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(data.replace(b"(3,)", b"(   "))
    with pytest.raises(InputError, match="plain arrays, found something else"):
        read_arrays(tmp_path / "x.npy")


def test_without_pillow_a_picture_says_what_to_install(
    photo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match="expected the Python package Pillow, found none; install"):
        picture(photo, NHWC, PLAIN)
