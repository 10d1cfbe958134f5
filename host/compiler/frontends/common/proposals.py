"""Proposes plausible shapes for open inputs: images, tokens or audio, judged by name and type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from edgekit.host.compiler.ir.types import DType, Shape

Dims = tuple[int | str | None, ...]

_CHANNELS = (1, 3, 4)
_TOKENS = (128, 64, 32, 16, 256, 512, 8, 1)
_SAMPLES = (16000, 512, 576, 1280, 1536, 480, 1760, 400, 160, 80)  # audio: 1 s, or frame sizes
_FRAMES = (100, 128, 76, 64, 32, 16, 96, 200, 8, 1)
_COUNT = 100
_PAST = 16  # tokens in a key-value cache
_VIDEO = 16  # frames
_FEATURES = 32  # height and width of feature maps
_TEXT_HEIGHTS = (32, 48, 64)  # of a line of text, which gets the width _TEXT_WIDTH
_TEXT_WIDTH = 320
_PICTURES = (  # regex on file and input name: height, width
    (r"ocr.*cls|cls.*ocr|textline_ori", (48, 192)),
    (r"rec(?![a-z])|crnn|svtr", (48, 320)),
    (r"det|yolo|ssd|dbnet|rtmdet|damo", (640, 640)),
    (r"seg|u2net|isnet|modnet|matting|depth|midas", (320, 320)),
)
_PLAIN_PICTURE = (224, 224)
_OTHER_SIDES = (320, 256, 640, 299, 192, 128, 112, 96, 64, 32, 28)
_SIZES = 1 + len(_OTHER_SIDES)  # later turns vary the picture size
PROPOSALS = 2 * _SIZES  # then the sizes again, with a middle axis of 1: states of recurrent layers
_INTEGERS = (DType.I32, DType.I64)


def propose(name: str, dtype: DType, dims: Dims | None, file: str, turn: int = 0) -> Shape:
    """A shape for the input `name` of `file` that keeps the known sizes of `dims` (None: any rank).

    `turn` 0 gives the most plausible of `PROPOSALS` shapes.
    """
    if dims is None:
        return (
            (1, _size_at_turn(_TOKENS, turn))
            if dtype in _INTEGERS
            else (1, 3, *_default_sides(name, file))
        )
    if len(dims) == 4:
        return _of_four(name, dims, file, turn)
    if len(dims) == 5:
        return _of_five(dims)
    if len(dims) == 3 and dims[2] in _CHANNELS and not isinstance(dims[0], int):
        return _fill_open_dims(dims, (*_propose_sides(name, dims[0], dims[1], file, turn), 3))
    return _fill_open_dims(
        dims, [_propose_length(name, dtype, dims, i, turn) for i in range(len(dims))]
    )


def _size_at_turn(sizes: Sequence[int], turn: int) -> int:
    return sizes[min(turn % _SIZES, len(sizes) - 1)]


def _of_four(name: str, dims: Dims, file: str, turn: int) -> Shape:
    _, second, third, last = dims
    if last in _CHANNELS and second not in _CHANNELS:
        return _fill_open_dims(dims, (1, *_propose_sides(name, second, third, file, turn), 3))
    if second in _CHANNELS or not isinstance(second, int):
        return _fill_open_dims(dims, (1, 3, *_propose_sides(name, third, last, file, turn)))
    if isinstance(last, int):  # attention heads of a known size
        size = _PAST if "past" in f"{name} {third}".lower() else _size_at_turn(_TOKENS, turn)
        return _fill_open_dims(dims, (1, second, size, last))
    return _fill_open_dims(dims, (1, second, _FEATURES, _FEATURES))


def _of_five(dims: Dims) -> Shape:
    side = _PLAIN_PICTURE[0] // 2
    if dims[4] in _CHANNELS:
        return _fill_open_dims(dims, (1, _VIDEO, side, side, 3))
    picture_first = dims[2] in _CHANNELS and dims[1] not in _CHANNELS
    return _fill_open_dims(dims, (1, *((_VIDEO, 3) if picture_first else (3, _VIDEO)), side, side))


def _propose_sides(
    name: str, height: int | str | None, width: int | str | None, file: str, turn: int
) -> tuple[int, int]:
    """Height and width of an image; a known side suggests the other."""
    if isinstance(height, int):
        return height, _TEXT_WIDTH if height in _TEXT_HEIGHTS else height
    if isinstance(width, int):
        return width, width
    if turn % _SIZES:
        return (_size_at_turn(_OTHER_SIDES, turn % _SIZES - 1),) * 2
    return _default_sides(name, file)


def _default_sides(name: str, file: str) -> tuple[int, int]:
    words = f"{PurePath(file).stem} {name}".lower()
    return next((sides for word, sides in _PICTURES if re.search(word, words)), _PLAIN_PICTURE)


def _propose_length(name: str, dtype: DType, dims: Dims, axis: int, turn: int) -> int:
    """A proposed size of a sequence axis: tokens, audio samples, frames, or items."""
    words = f"{dims[axis] or ''}".lower()
    if "batch" in words or (axis == 0 and words == "n"):
        return 1
    if re.search(r"num|count|box|point|roi", words):
        return _COUNT
    if dtype in _INTEGERS:
        return 1 if len(dims) == 1 and not words else _size_at_turn(_TOKENS, turn)
    sound = len(dims) < 3 or (len(dims) == 3 and dims[1] == 1 and axis == 2)
    if axis == len(dims) - 1 and sound:
        return _size_at_turn(_SAMPLES, turn)
    if len(dims) == 3 and axis == 1 and (turn >= _SIZES or _is_state(name, dims)):
        return 1
    sizes = _TOKENS if re.search(r"seq|token|text", f"{words} {name}".lower()) else _FRAMES
    return _size_at_turn(sizes, turn)


def _is_state(name: str, dims: Dims) -> bool:
    """Whether an input [layers, batch, size] is the state of a recurrent layer."""
    layers, _, size = dims
    if not isinstance(layers, int) or not isinstance(size, int):
        return False
    return layers > 1 or re.search(r"state|hidden|cell|^[hc]_?[0n]?$", name.lower()) is not None


def _fill_open_dims(dims: Dims, proposed: Sequence[int]) -> Shape:
    """`proposed`, except where `dims` is known."""
    return tuple(d if isinstance(d, int) else p for d, p in zip(dims, proposed, strict=True))
