"""Pictures and texts as inputs of a deployed model, and boxes, poses and classes as its results."""

from __future__ import annotations

import ctypes
from array import array
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from edgekit.device.runtime.agent.fitting import Box, Placed, Pose, boxes_of, place, poses_of
from edgekit.device.runtime.agent.images import Image, image_of
from edgekit.device.runtime.agent.instances import Instance, instances_of
from edgekit.device.runtime.agent.lines import Line, page_task, reading_part
from edgekit.device.runtime.agent.pages import Crop, read_line
from edgekit.device.runtime.agent.rotated import Rotated, rotated_of, upright
from edgekit.device.runtime.agent.segments import Segments, segments_of
from edgekit.device.runtime.agent.sound_vectors import vector_of_sound
from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.task import (
    ASKED,
    BGR,
    BOXES,
    CLASSIFY,
    EMBED,
    FILTERS,
    IMAGE,
    INSTANCES,
    OBB,
    OCR,
    POSE,
    SEGMENT,
    TaskSpec,
)
from edgekit.device.runtime.application.loaded import Loaded
from edgekit.device.runtime.errors import InputError

_COLORS = 3
_RANGES = {"s8": (-128, 127), "u8": (0, 255)}


class Class(NamedTuple):
    """A class of a classifier; `label` is empty if unknown."""

    label: str
    score: float
    number: int


class Picture(ctypes.Structure):
    """ek_picture of runtime/picture.h."""

    _fields_ = [
        ("pixels", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in (
            "width", "height", "stride", "left", "top", "across", "down", "to_width", "to_height",
            "channels", "planes", "reversed", "fill",
        )),
        ("table", ctypes.c_void_p),
        ("factor", ctypes.c_float * _COLORS),
        ("shift", ctypes.c_float * _COLORS),
    ]  # fmt: skip


def detect(loaded: Loaded, frame: Any, width: int, height: int) -> List[Box]:
    """See Model.detect."""
    task = _task_of(loaded, *BOXES)
    data, placed = _input_of(loaded, task, frame, width, height)
    rows = loaded.run({task.input: data}, {}, loaded.manifest.signature)[task.output]
    return boxes_of(_floats(rows), _output_of(loaded, task).shape[-1], task, placed)


def classify(loaded: Loaded, frame: Any, width: int, height: int, top: int) -> List[Class]:
    """See Model.classify."""
    task = _task_of(loaded, CLASSIFY)
    scores = loaded.run(_inputs(loaded, task, frame, width, height), {}, "")[task.output]
    real = _real(scores, _output_of(loaded, task))
    best = sorted(range(len(real)), key=lambda i: -real[i])[:top]
    return [Class(task.labels[i] if i < len(task.labels) else "", real[i], i) for i in best]


def pose(loaded: Loaded, frame: Any, width: int, height: int) -> List[Pose]:
    """See Model.pose."""
    task = _task_of(loaded, POSE)
    data, placed = _input_of(loaded, task, frame, width, height)
    rows = loaded.run({task.input: data}, {}, "")[task.output]
    return poses_of(_floats(rows), _output_of(loaded, task).shape[-1], task, placed)


def segment(loaded: Loaded, frame: Any, width: int, height: int) -> Segments:
    """See Model.segment."""
    task = _task_of(loaded, SEGMENT)
    data, placed = _input_of(loaded, task, frame, width, height)
    found = bytes(loaded.run({task.input: data}, {}, "")[task.output])
    _, rows, columns = _output_of(loaded, task).shape
    size = _extents(_spec_of(loaded.manifest.inputs, task.input))[:2]
    return segments_of(found, (rows, columns), size, task, placed)


def image(loaded: Loaded, frame: Any, width: int, height: int) -> Image:
    """See Model.image."""
    task = _task_of(loaded, IMAGE)
    data, placed = _input_of(loaded, task, frame, width, height)
    made = bytes(loaded.run({task.input: data}, {}, "")[task.output])
    _, rows, columns, channels = _output_of(loaded, task).shape
    size = _extents(_spec_of(loaded.manifest.inputs, task.input))[:2]
    return image_of(made, (rows, columns, channels), size, placed)


def obb(loaded: Loaded, frame: Any, width: int, height: int) -> List[Rotated]:
    """See Model.obb."""
    task = _task_of(loaded, OBB)
    data, placed = _input_of(loaded, task, frame, width, height)
    rows = loaded.run({task.input: data}, {}, loaded.manifest.signature)[task.output]
    return rotated_of(_floats(rows), _output_of(loaded, task).shape[-1], task, placed)


def boxes(loaded: Loaded, page: Crop) -> List[Rotated]:
    """The boxes of a page, rotated if the model finds such."""
    if _task_of(loaded, *BOXES).kind == OBB:
        return obb(loaded, *page)
    return [upright(box) for box in detect(loaded, *page)]


def instances(loaded: Loaded, frame: Any, width: int, height: int) -> List[Instance]:
    """See Model.instances."""
    task = _task_of(loaded, INSTANCES)
    data, placed = _input_of(loaded, task, frame, width, height)
    made = loaded.run({task.input: data}, {}, "")
    _, *extents = _spec_of(loaded.manifest.outputs, task.masks).shape
    size = _extents(_spec_of(loaded.manifest.inputs, task.input))[:2]
    return instances_of(
        _floats(made[task.output]),
        _output_of(loaded, task).shape[-1],
        bytes(made[task.masks]),
        (extents[0], extents[1]),
        size,
        task,
        placed,
    )


def embed(loaded: Loaded, frame: Any, width: int, height: int) -> List[float]:
    """See Model.embed."""
    task = _task_of(loaded, EMBED)
    if task.hears:
        ends = loaded.manifest.inputs
        return vector_of_sound(frame, task, ends, lambda inputs: loaded.run(inputs, {}, ""))
    made = loaded.run(_inputs(loaded, task, frame, width, height), {}, "")
    return list(_floats(made[task.output]))


def ocr(loaded: Loaded, frame: Any, width: int, height: int) -> Line:
    """See Model.ocr."""
    part = reading_part(loaded.manifest.every_variant())
    task = page_task(loaded.manifest.task, part) or _task_of(loaded, OCR)
    signature, inputs = (part.signature, part.inputs) if part else ("", loaded.manifest.inputs)
    spec = _spec_of(inputs, task.input)
    rows, columns, _, _ = _extents(spec)

    def read(piece: Crop) -> Line:
        data, _ = _fitted(loaded, task, spec, *piece)
        made = loaded.run({task.input: data}, {}, signature)[task.output]
        return loaded.characters().line(_floats(made))

    return read_line(crop_of(frame, width, height), columns / rows, read)


def crop_of(frame: Any, width: int, height: int) -> Crop:
    """A whole picture."""
    pixels, width, height = _pixels_of(frame, width, height)
    return Crop(bytes(pixels), width, height)


def _inputs(loaded: Loaded, task: TaskSpec, frame: Any, width: int, height: int) -> Dict[str, Any]:
    """The model's inputs for a text or a picture."""
    if isinstance(frame, str):
        return dict(loaded.texts().inputs(frame))
    if task.tokenizer:
        raise InputError(f"{task.kind}: expected a text, found {type(frame).__name__}")
    return {task.input: _input_of(loaded, task, frame, width, height)[0]}


def _output_of(loaded: Loaded, task: TaskSpec) -> TensorSpec:
    return _spec_of(loaded.manifest.outputs, task.output)


def _spec_of(specs: Sequence[TensorSpec], name: str) -> TensorSpec:
    return next(spec for spec in specs if spec.name == name)


def _task_of(loaded: Loaded, kind: str, *others: str) -> TaskSpec:
    task = loaded.manifest.task
    if task is None or task.kind not in (kind, *others):
        asked = ASKED.get(kind, kind)
        own = task.kind if task and not task.hears else "run"
        raise InputError(
            f"{kind}: expected a model that was compiled with --task {asked}, found "
            f"{task.kind if task else 'no task'}; compile it so, or use {own}()"
        )
    return task


def _input_of(
    loaded: Loaded, task: TaskSpec, frame: Any, width: int, height: int
) -> Tuple[Any, Placed]:
    """The model's input from a picture, and the position of the picture in it."""
    return _fitted(loaded, task, _spec_of(loaded.manifest.inputs, task.input), frame, width, height)


def _fitted(
    loaded: Loaded, task: TaskSpec, spec: TensorSpec, frame: Any, width: int, height: int
) -> Tuple[Any, Placed]:
    """The same of an input of any variant."""
    pixels, width, height = _pixels_of(frame, width, height)
    rows, columns, channels, planes = _extents(spec)
    placed = place((width, height), columns, rows, task.fit, task.zoom)
    made = (ctypes.c_char * spec.bytes)()
    held = (ctypes.c_char * len(pixels)).from_buffer_copy(pixels) if pixels.readonly else None
    source = held if held is not None else (ctypes.c_char * len(pixels)).from_buffer(pixels)
    picture = Picture(
        ctypes.addressof(source), width, height, _COLORS * width, placed.left, placed.top,
        placed.width, placed.height, columns, rows, channels, planes, task.channels == BGR,
        task.fill,
    )  # fmt: skip
    if spec.dtype == "f32":
        for channel in range(channels):
            mean, scale = _scaling(task, channel)
            picture.factor[channel], picture.shift[channel] = 1 / scale, -mean / scale
    else:
        table = _byte_table(task, spec, channels)
        picture.table = table.buffer_info()[0]
    if task.filter:
        number = FILTERS.index(task.filter)
        code = loaded.function("ek_filter_picture")(ctypes.byref(picture), number, made)
    else:
        code = loaded.function("ek_fit_picture")(ctypes.byref(picture), made)
    if code != 0:
        raise InputError(f"expected a picture of at least 1 x 1 pixels, found {width} x {height}")
    flat = memoryview(made).cast("B")
    return (flat.cast("f") if spec.dtype == "f32" else flat), placed


def _pixels_of(frame: Any, width: int, height: int) -> Tuple[memoryview, int, int]:
    """The bytes of a frame, and its size."""
    give = "give an array [height, width, 3] of bytes, or bytes with width and height"
    try:
        view = memoryview(frame)
    except TypeError:
        name = type(frame).__name__
        raise InputError(f"expected a picture as bytes, found {name}; {give}") from None
    if not (width or height):
        shape = view.shape or ()
        if len(shape) != _COLORS:
            raise InputError(f"expected a picture of known size, found {[*shape]}; {give}")
        height, width = shape[:2]
    if min(width, height) < 1:
        raise InputError(f"expected at least 1 x 1 pixels, found {width} x {height}; {give}")
    if view.itemsize != 1 or view.nbytes != _COLORS * width * height:
        found = f"{view.nbytes} bytes" if view.itemsize == 1 else f"elements of {view.itemsize}"
        raise InputError(f"expected {width} x {height} pixels of 3 bytes, found {found}; {give}")
    flat = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    return flat, width, height


def _extents(spec: TensorSpec) -> Tuple[int, int, int, bool]:
    """Height, width and channels of the input, and whether the channels come first."""
    _, *extents = spec.shape
    if extents[2] in (1, _COLORS):
        return extents[0], extents[1], extents[2], False
    return extents[1], extents[2], extents[0], True


def _byte_table(task: TaskSpec, spec: TensorSpec, channels: int) -> array[Any]:
    """The element of each byte in each channel: the quantized (pixel - mean) / scale, or the pixel
    itself if the task states no range."""
    if spec.dtype not in _RANGES:
        raise InputError(
            f"expected an input of f32, s8 or u8, found '{spec.name}' of {spec.dtype}; use run()"
        )
    low, high = _RANGES[spec.dtype]
    made: array[Any] = array("b" if low else "B")
    plain = spec.scale is None or not (task.mean or task.scale)
    for channel in range(channels):
        mean, scale = _scaling(task, channel)
        for pixel in range(256):
            if plain:
                made.append(pixel + low)
            else:
                real = (pixel - mean) / scale
                code = round(real / (spec.scale or 1.0)) + (spec.zero_point or 0)
                made.append(min(max(code, low), high))
    return made


def _scaling(task: TaskSpec, channel: int) -> Tuple[float, float]:
    """Mean and scale of a channel; values from 0 to 1 if the task states neither."""
    mean, scale = (v[channel if len(v) > 1 else 0] if v else None for v in (task.mean, task.scale))
    if mean is None and scale is None:
        return 0.0, 255.0
    return mean or 0.0, 1.0 if scale is None else scale


def _floats(output: Any) -> Sequence[float]:
    return memoryview(output).cast("B").cast("f").tolist()


def _real(output: Any, spec: TensorSpec) -> List[float]:
    """The real values of an output."""
    if spec.dtype == "f32":
        return list(_floats(output))
    stored = memoryview(output).cast("B").cast("b" if spec.dtype == "s8" else "B").tolist()
    scale, zero = spec.scale or 1.0, spec.zero_point or 0
    return [(value - zero) * scale for value in stored]
