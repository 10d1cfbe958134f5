"""Converts pictures to model inputs: rotated upright, resized, with scaled pixels."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.agent.fitting import Placed, place
from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.task import CUBIC
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.host.common.optional import optional
from edgekit.host.compiler.inputs.options import InputOptions
from edgekit.host.compiler.inputs.real import as_input
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_UNREADABLE = (  # what Pillow raises for damaged files
    OSError, ValueError, SyntaxError, EOFError, TypeError, LookupError, RuntimeError,
)  # fmt: skip
_SMALLEST = 8  # minimum side in pixels if the shape is ambiguous (not batch, size and channels)


def picture(path: Path, spec: TensorSpec, options: InputOptions) -> NDArray[Any]:
    """Read a picture file in the shape and dtype of `spec`.

    Raises InputError if it is no picture, if Pillow is missing, or if the input is not an image.
    """
    _, _, channels, _ = _image_extents(str(path), spec, options)
    return loaded_picture(upright_picture(path, _MODES[channels]), str(path), spec, options)


def loaded_picture(
    loaded: Picture, name: str, spec: TensorSpec, options: InputOptions
) -> NDArray[Any]:
    """A picture in the shape and dtype of `spec`; see `picture`."""
    height, width, channels, is_nchw = _image_extents(name, spec, options)
    fitted = _fitted(loaded.convert(_MODES[channels]), width, height, options)
    pixels = np.asarray(fitted, np.float64)
    return _as_input(pixels.reshape(height, width, channels), spec, options, is_nchw)


class PixelFrames:
    """Raw frames from other programs: rows of pixels, a byte per channel, in the model's size.
    Raises InputError if the model does not take a single picture."""

    def __init__(self, specs: Sequence[TensorSpec], options: InputOptions) -> None:
        if len(specs) != 1:
            raise InputError(f"--pixels: expected a model with one input, found {len(specs)}")
        self._spec, self._options = specs[0], options
        *self._shape, self._is_nchw = _image_extents("--pixels", specs[0], options)
        self.extents = {"height": self._shape[0], "width": self._shape[1]}
        self.bytes = math.prod(self._shape)

    def inputs(self, data: bytes) -> dict[str, NDArray[Any]]:
        """Convert the bytes of a frame to the model's input."""
        pixels = np.frombuffer(data, np.uint8).reshape(self._shape).astype(np.float64)
        return {self._spec.name: _as_input(pixels, self._spec, self._options, self._is_nchw)}


def _as_input(
    pixels: NDArray[np.float64], spec: TensorSpec, options: InputOptions, is_nchw: bool
) -> NDArray[Any]:
    if options.channels == "bgr" and pixels.shape[-1] > 1:
        pixels = np.concatenate([pixels[..., 2::-1], pixels[..., 3:]], axis=-1)
    values = _scale_pixels(pixels, spec, options)
    if is_nchw:
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values).reshape(spec.shape)


def _image_extents(
    what: str, spec: TensorSpec, options: InputOptions
) -> tuple[int, int, int, bool]:
    """Return height, width and channels of the input, and whether it is channels-first."""
    shape = spec.shape[1:] if len(spec.shape) == 4 and spec.shape[0] == 1 else spec.shape
    # Three axes may also be a sequence of short feature vectors: decide by size or layout option.
    least = _SMALLEST if len(spec.shape) == 3 and not options.layout else 1
    if len(shape) == 3:
        if options.layout != "nchw" and shape[2] in _MODES and min(shape[:2]) >= least:
            return shape[0], shape[1], shape[2], False
        if options.layout != "nhwc" and shape[0] in _MODES and min(shape[1:]) >= least:
            return shape[1], shape[2], shape[0], True
    layout = f" with layout {options.layout}" if options.layout else ""
    raise InputError(
        f"{what}: expected an input of one picture with 1, 3 or 4 channels{layout}, found "
        f"'{spec.name}' of {spec.dtype} {list(spec.shape)}; give its values as .npz"
    )


def placed_picture(
    path: Path, spec: TensorSpec, options: InputOptions
) -> tuple[Picture, Placed, tuple[int, int]]:
    """Read a picture upright, in RGB, and its position in the input `spec`, whose rows and columns
    are returned, too. Raises InputError."""
    loaded = upright_picture(path)
    return loaded, *placed_in(loaded.size, str(path), spec, options)


def picture_size(name: str, spec: TensorSpec, options: InputOptions) -> tuple[int, int]:
    """Width and height of the pictures that the input takes. Raises InputError with the `name` of a
    picture if it takes none."""
    height, width, _, _ = _image_extents(name, spec, options)
    return width, height


def placed_in(
    size: tuple[int, int], name: str, spec: TensorSpec, options: InputOptions
) -> tuple[Placed, tuple[int, int]]:
    """Where a picture of that size lies in the input, whose rows and columns are returned, too."""
    height, width, _, _ = _image_extents(name, spec, options)
    return place(size, width, height, options.fit, options.zoom), (height, width)


def _fitted(loaded: Picture, width: int, height: int, options: InputOptions) -> Picture:
    _, images = optional("PIL", "PIL.Image")
    mode, filters = loaded.mode, images.Resampling
    placed = place(loaded.size, width, height, options.fit, options.zoom)
    if options.filter:
        how = filters.BICUBIC if options.filter == CUBIC else filters.BILINEAR
        resized = loaded.resize((placed.width, placed.height), how)
    else:
        pixels = np.asarray(loaded)
        resized = images.fromarray(_between_two(pixels, placed.width, placed.height), mode)
    if resized.size == (width, height):
        return resized
    fill = options.fill if mode == "L" else (options.fill,) * 3 + (255,) * (mode == "RGBA")
    made: Picture = images.new(mode, (width, height), fill)
    made.paste(resized, (placed.left, placed.top))
    return made


def _between_two(pixels: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """Pixels as runtime/picture.c resizes them: between two in each direction."""
    made = pixels.astype(np.int64) if pixels.ndim == 3 else pixels.astype(np.int64)[..., None]
    taps = []
    for axis, size in enumerate((height, width)):
        last = made.shape[axis] - 1
        at = (((2 * np.arange(size) + 1) * (last + 1)) << 15) // size - (1 << 15)
        low = np.minimum(np.maximum(at, 0) >> 16, last)
        weight = np.maximum(at, 0) >> 8 & 255
        taps.append((low, np.minimum(low + 1, last), weight))
    (top, bottom, down), (left, right, across) = taps
    down, across = down[:, None, None], across[None, :, None]
    above, below = (
        made[rows][:, left] * (256 - across) + made[rows][:, right] * across
        for rows in (top, bottom)
    )
    total = above * (256 - down) + below * down
    rounded: NDArray[np.uint8] = ((total + (1 << 15)) >> 16).astype(np.uint8)
    return rounded.reshape(height, width, *pixels.shape[2:])


def upright_picture(path: Path, mode: str = "RGB") -> Picture:
    """Read a picture. Raises InputError."""
    _, images, orientation = optional("PIL", "PIL.Image", "PIL.ImageOps")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", images.DecompressionBombWarning)
            with images.open(path) as opened:
                upright: Picture = orientation.exif_transpose(opened)
                return _in_eight_bits(upright).convert(mode)
    except (images.DecompressionBombWarning, images.DecompressionBombError):
        raise InputError(
            f"{path}: expected a picture of at most {images.MAX_IMAGE_PIXELS} pixels, found more; "
            "make it smaller"
        ) from None
    except _UNREADABLE as error:
        raise InputError(
            f"{path}: expected a picture that Pillow reads, found: {error}; save it as PNG"
        ) from None


def frames_of(path: Path) -> int:
    """How many pictures an animation or a document has; 1 for others and files that cannot be
    read. Photos with a preview count as one."""
    _, images = optional("PIL", "PIL.Image")
    try:
        with images.open(path) as opened:
            return 1 if opened.format == "MPO" else int(getattr(opened, "n_frames", 1))
    except (*_UNREADABLE, images.DecompressionBombError):
        return 1


def _in_eight_bits(picture: Picture) -> Picture:
    """Pillow's conversions cut 16 bits at 255 instead of scaling them. ValueError for more bits, or
    floats that are not from 0 to 255."""
    if picture.mode in ("F", "I"):
        values = np.asarray(picture)
        low, high = float(values.min()), float(values.max())
        most, least = (255, 1) if picture.mode == "F" else (65535, 0)
        if low < 0 or high > most or low < high <= least:
            raise ValueError(f"pixels from {low:g} to {high:g}")
    if picture.mode not in ("I;16", "I;16B", "I;16L", "I"):
        return picture
    _, images = optional("PIL", "PIL.Image")
    eight = np.asarray(picture).astype(np.int64) >> 8
    made: Picture = images.fromarray(np.clip(eight, 0, 255).astype(np.uint8))
    return made


def _scale_pixels(
    pixels: NDArray[np.float64], spec: TensorSpec, options: InputOptions
) -> NDArray[Any]:
    """Scale pixels; the default is 0 to 1 for floats, and an offset to the lowest value for 8-bit
    integers."""
    mean, scale = options.scaling
    for name, values in (("mean", mean), ("scale", scale)):
        if len(values) not in (0, 1, pixels.shape[-1]) or (name == "scale" and 0.0 in values):
            raise InputError(
                f"input '{spec.name}': expected a {name} of 1 or {pixels.shape[-1]} nonzero "
                f"numbers, found {', '.join(f'{v:g}' for v in values)}"
            )
    if scale:
        return as_input((pixels - mean) / scale, spec)
    wanted = np.dtype(BY_NAME[spec.dtype].npy)
    if wanted.kind == "f":
        return (pixels / 255).astype(wanted)
    return (pixels - (128 if spec.dtype == "s8" else 0)).astype(wanted)
