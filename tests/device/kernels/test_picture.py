"""Pictures become inputs: resized, placed, colors in order, every byte through a table."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from PIL import Image

from edgekit.device.runtime.agent.fitting import place
from edgekit.device.runtime.application.pictures import Picture
from edgekit.host.compiler.toolchain.zig import TranslationUnit, kernels_folder
from edgekit.kb.targets.board import load_board
from tests.support.toolchains import toolchain_for


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    unit = TranslationUnit("picture", kernels_folder() / "runtime/picture.c")
    file = tmp_path_factory.mktemp("library") / "picture.so"
    file.write_bytes(toolchain_for(load_board("local")).build([unit]))
    return ctypes.CDLL(str(file))


def _resized(pixels, width, height):
    """Bilinear interpolation between centers of pixels, in f64."""
    made = pixels.astype(np.float64)
    for axis, size in ((0, height), (1, width)):
        at = np.maximum((np.arange(size) + 0.5) * made.shape[axis] / size - 0.5, 0)
        low = np.minimum(at.astype(int), made.shape[axis] - 1)
        high = np.minimum(low + 1, made.shape[axis] - 1)
        weight = (at - low).reshape([-1 if i == axis else 1 for i in range(3)])
        made = made.take(low, axis) * (1 - weight) + made.take(high, axis) * weight
    return made


def _expected(pixels, size, fit, fill, channels):
    width, height = size
    placed = place(pixels.shape[1::-1], width, height, *fit)
    made = np.full((height, width, 3), float(fill))
    resized = _resized(pixels, placed.width, placed.height)
    top, left = max(-placed.top, 0), max(-placed.left, 0)
    part = resized[top : top + height, left : left + width]
    y, x = max(placed.top, 0), max(placed.left, 0)
    made[y : y + part.shape[0], x : x + part.shape[1]] = part
    return made if channels == 3 else made @ [[0.299], [0.587], [0.114]]


@pytest.mark.parametrize(("fit", "zoom"), [("stretch", 1.3), ("letterbox", 1), ("crop", 1)])
@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.uint8])
@pytest.mark.parametrize("channels", [3, 1])
def test_every_pixel_is_where_numpy_puts_it(library, fit, zoom, planes, kind, channels):
    rng = np.random.default_rng(0)
    for source, size in (
        ((1, 1), (1, 1)), ((1, 1), (5, 3)), ((7, 5), (7, 5)), ((9, 4), (300, 257)),
        ((301, 77), (64, 48)), ((2, 199), (31, 8)), ((64, 3), (5, 64)),
    ):  # fmt: skip
        pixels = rng.integers(0, 256, (source[1], source[0], 3)).astype(np.uint8)
        table = np.stack([np.arange(256)] * channels).astype(np.uint8)
        placed = place(source, *size, fit, zoom)
        made = np.zeros((channels, *size[::-1]) if planes else (*size[::-1], channels), kind)
        picture = Picture(
            pixels.ctypes.data, *source, 3 * source[0], placed.left, placed.top, placed.width,
            placed.height, *size, channels, planes, False, 114,
            table.ctypes.data if kind is np.uint8 else None, (1, 1, 1), (0, 0, 0),
        )  # fmt: skip
        assert library.ek_fit_picture(ctypes.byref(picture), ctypes.c_void_p(made.ctypes.data)) == 0
        found = made.transpose(1, 2, 0) if planes else made
        expected = _expected(pixels, size, (fit, zoom), 114, channels)
        np.testing.assert_allclose(found.astype(float), expected, atol=2.1)


@pytest.mark.parametrize(("fit", "zoom"), [("stretch", 1), ("letterbox", 1), ("crop", 1.14)])
@pytest.mark.parametrize(("number", "own"), [(1, Image.Resampling.BILINEAR), (2, Image.BICUBIC)])
def test_filtered_pixels_are_those_of_pillow(library, fit, zoom, number, own):
    rng = np.random.default_rng(0)
    for source, size in (
        ((1, 1), (1, 1)), ((1, 1), (5, 3)), ((7, 5), (7, 5)), ((9, 4), (300, 257)),
        ((301, 77), (64, 48)), ((2, 199), (31, 8)), ((64, 48), (32, 48)), ((3, 640), (7, 7)),
    ):  # fmt: skip
        pixels = rng.integers(0, 256, (source[1], source[0], 3)).astype(np.uint8)
        placed = place(source, *size, fit, zoom)
        if min(placed.width, placed.height) < 1:
            continue
        made = np.zeros((*size[::-1], 3), np.float32)
        picture = Picture(
            pixels.ctypes.data, *source, 3 * source[0], placed.left, placed.top, placed.width,
            placed.height, *size, 3, False, False, 114, None, (1, 1, 1), (0, 0, 0),
        )  # fmt: skip
        into = ctypes.c_void_p(made.ctypes.data)
        assert library.ek_filter_picture(ctypes.byref(picture), number, into) == 0
        # Some versions of Pillow first resize tall pictures down.
        across = Image.fromarray(pixels).resize((placed.width, source[1]), own)
        resized = across.resize((placed.width, placed.height), own)
        expected = Image.new("RGB", size, (114,) * 3)
        expected.paste(resized, (placed.left, placed.top))
        np.testing.assert_array_equal(made, np.asarray(expected))


@pytest.mark.parametrize("planes", [False, True])
def test_factors_and_order_of_channels(library, planes):
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    table = np.array([np.arange(256), 255 - np.arange(256), np.arange(256) // 2], np.uint8)
    for kind in (np.float32, np.uint8):
        made = np.zeros((3, 2, 4) if planes else (2, 4, 3), kind)
        picture = Picture(
            pixels.ctypes.data, 4, 2, 12, 0, 0, 4, 2, 4, 2, 3, planes, True, 0,
            table.ctypes.data if kind is np.uint8 else None, (2, 3, 5), (1, 0, -1),
        )  # fmt: skip
        assert library.ek_fit_picture(ctypes.byref(picture), ctypes.c_void_p(made.ctypes.data)) == 0
        found = made.transpose(1, 2, 0) if planes else made
        expected = pixels[..., ::-1] * np.float32([2, 3, 5]) + np.float32([1, 0, -1])
        if kind is np.uint8:
            expected = np.stack([table[c][pixels[..., 2 - c]] for c in range(3)], -1)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["width", "down", "to_height", "channels"])
def test_impossible_sizes_are_refused(library, name):
    made = np.zeros(12, np.float32)
    sizes = dict.fromkeys(("width", "height", "across", "down", "to_width", "to_height"), 1)
    picture = Picture(channels=3, stride=3, **sizes)
    picture.pixels = made.ctypes.data
    setattr(picture, name, 0)
    assert library.ek_fit_picture(ctypes.byref(picture), ctypes.c_void_p(made.ctypes.data)) == -1
