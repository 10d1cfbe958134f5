"""Models that make a picture of a picture: a larger or changed one, or a map of one value for each
pixel, such as a depth, which is shown in colors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.task import IMAGE, TaskSpec
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.hub import POINTS
from edgekit.host.compiler.tasks.known import KnownModel
from edgekit.host.compiler.tasks.prepared import Prepared, free_name, recognized
from edgekit.host.compiler.tasks.usual_pixels import picture_by_name

_NAME = "image"  # of the output
_DEPTH = "depth"  # part of the names of maps that are shown, with others
_MOST = 255.0  # of a pixel
_MOST_TIMES = 8  # as large as the input
_TINY = 1e-6
_SIGNED: dict[str, Any] = {"mean": (127.5,), "scale": (127.5,)}
_SHARES: dict[str, Any] = {"mean": (0.0,), "scale": (255.0,)}
_BYTES: dict[str, Any] = {"mean": (0.0,), "scale": (1.0,)}
# Colors of a map from its least to its largest value, dark to bright.
_COLORS = ((0, 0, 4), (40, 11, 84), (101, 21, 110), (159, 42, 99), (212, 72, 66), (245, 125, 21),
           (250, 193, 39), (252, 255, 164))  # fmt: skip


@dataclass(frozen=True)
class ImageOutput:
    """A tensor of `rows` x `columns` pixels with `channels` along `axis`, 0 if it has no such
    axis. `is_map`: of other values than the colors of the input."""

    tensor: Tensor
    rows: int
    columns: int
    axis: int
    channels: int
    is_map: bool

    def pixels(self, to: Appender, spec: dict[str, Any]) -> str:
        """Appends what computes the picture, u8 [1, rows, columns, channels]; a value is (pixel -
        mean) / scale, as `spec` has them. A map gets colors from its least to its largest value."""
        x = to.floats(self.tensor.name)
        if self.axis == 1:
            x = to.add(ops.Transpose((0, 2, 3, 1)), x)
        x = to.add(ops.Reshape((1, self.rows, self.columns, self.channels)), x)
        if self.is_map:
            return self._colored(to, x)
        mean, scale = (np.reshape(spec[name], (1, 1, 1, -1)) for name in ("mean", "scale"))
        x = to.add(ops.Add(), to.add(ops.Mul(), x, to.constant(scale)), to.constant(mean + 0.5))
        return to.add(ops.Convert(DType.U8, saturate=True), x)

    def _colored(self, to: Appender, x: str) -> str:
        axes = (1, 2, 3)
        low, high = (to.add(op(axes, keep_dims=True), x) for op in (ops.ReduceMin, ops.ReduceMax))
        width = to.add(ops.Sub(), high, low)
        width = to.add(ops.Maximum(), width, to.constant(np.full((1, 1, 1, 1), _TINY)))
        part = to.add(ops.Div(), to.add(ops.Sub(), x, low), width)
        part = to.add(ops.Mul(), part, to.constant(np.full((1, 1, 1, 1), _MOST)))
        number = to.add(ops.Convert(DType.I32, saturate=True), part)
        flat = to.add(ops.Reshape((1, self.rows, self.columns)), number)
        return to.add(ops.Gather(0), to.constant(palette(), DType.U8), flat)


def palette() -> Array:
    """The colors of 256 values, u8 [256, 3]."""
    at = np.linspace(0, len(_COLORS) - 1, 256)
    columns = zip(*_COLORS, strict=True)
    made = [np.interp(at, range(len(_COLORS)), column) for column in columns]
    colors: Array = np.stack(made, 1).round().astype(np.uint8)
    return colors


def image_output(ends: Ends) -> ImageOutput | None:
    """The only output that is as large as the input, or some whole number of times, with one value
    or three for each pixel, or the only one of these that is called a depth."""
    found = [made for tensor in ends.outputs if (made := _image_of(ends, tensor))]
    depths = [made for made in found if _DEPTH in made.tensor.name.lower()]
    found = depths if len(found) > 1 else found
    return found[0] if len(found) == 1 else None


def _image_of(ends: Ends, tensor: Tensor) -> ImageOutput | None:
    shape, image = tensor.shape, ends.image
    if ends.choices(tensor.name):
        return None  # numbers of classes
    if len(shape) not in (3, 4) or shape[0] != 1 or not (tensor.quant or tensor.dtype.is_float):
        return None
    for axis in (1, 3) if len(shape) == 4 else (0,):
        rows, columns = (n for i, n in enumerate(shape) if i and (i != axis or not axis))
        channels = shape[axis]
        times = rows // image.height
        whole = (rows, columns) == (times * image.height, times * image.width)
        if whole and 1 <= times <= _MOST_TIMES and channels in (1, 3):
            is_map = channels == 1 and image.channels == 3
            return ImageOutput(tensor, rows, columns, axis, channels, is_map)
    return None


def pixels_of(model: KnownModel, made: ImageOutput) -> tuple[dict[str, Any], str]:
    """How pixels become values, and why. Files next to the model say it, and how the output ends:
    a tanh from -1 to 1, a sigmoid from 0 to 1."""
    stated, name = model.pixels(0), made.tensor.name
    takes_bytes = model.ends.graph.tensors[model.ends.image.name].dtype is DType.U8
    if stated:
        return {**(_BYTES if takes_bytes else _SHARES), **stated}, ""
    if takes_bytes:
        return {}, ""
    whose, named = _by_name(model)
    if whose and not made.is_map:
        return named, f", pixels as models of {whose} take them"
    if made.is_map:
        likely = model.named_pixels[1] or model.torch_pixels
        return likely, ", pixels as PyTorch's models take them" if likely else ""
    if model.ends.is_from(name, ops.Tanh.kind):
        return _SIGNED, ", pixels from -1 to 1"
    if _normalizes_each_picture(model.ends) and not model.ends.is_from(name, ops.Logistic.kind):
        return _BYTES, ", pixels from 0 to 255 as fast neural style takes them"
    return _SHARES, ", pixels from 0 to 1"


def _by_name(model: KnownModel) -> tuple[str, dict[str, Any]]:
    shape = model.ends.graph.tensors[model.ends.image.name].shape
    return picture_by_name(model.path.stem, colors_last=shape[-1] == model.ends.image.channels)


def _output_pixels(ends: Ends, made: ImageOutput, taken: dict[str, Any]) -> dict[str, Any]:
    """Those of the output, which are the input's unless how it ends shows others."""
    for kind, known in ((ops.Tanh.kind, _SIGNED), (ops.Logistic.kind, _SHARES)):
        if ends.is_from(made.tensor.name, kind):
            return known
    return taken or _BYTES


def _is_picture(model: KnownModel, made: ImageOutput) -> bool:
    """Whether the output can be no scores of classes: it is larger than the input, has limits, is
    added to the input, or is from a network that changes a picture by its name or its norms."""
    ends = model.ends
    node = ends.maker(made.tensor.name)
    if _by_name(model)[0]:
        return True
    if made.is_map or made.rows > ends.image.height or node is None:
        return True
    ends_so = isinstance(node.op, ops.Tanh | ops.Logistic | ops.Clamp | ops.Clip | ops.Minimum)
    added = isinstance(node.op, ops.Add | ops.Sub) and ends.image.name in node.inputs
    return ends_so or added or _normalizes_each_picture(ends)


def _normalizes_each_picture(ends: Ends) -> bool:
    """Whether it computes means of most of the picture and goes on with pixels, as instance
    normalization does."""
    tensors, made = ends.graph.tensors, ends.graph.producer()
    least = ends.image.height * ends.image.width // 16
    for node in ends.graph.nodes:
        mean = made.get(node.inputs[1] or "") if isinstance(node.op, ops.Sub) else None
        if mean is not None and isinstance(mean.op, ops.Mean):
            (x, *_), (y,) = mean.inputs, mean.outputs
            if tensors[x or ""].elements >= least * tensors[y].elements:
                return True
    return False


def undecided_image(model: KnownModel) -> str:
    """Why a result that may be a picture is not shown; empty for other outputs."""
    made = image_output(model.ends)
    if made is None or _is_picture(model, made):
        return ""
    return f"'{made.tensor.name}' may be a picture or scores of classes for each pixel"


def image_maker(model: KnownModel) -> Prepared | None:
    """A picture of the output. Unless that is asked for, it must be no scores of classes."""
    ends = model.ends
    made = image_output(ends)
    if made is None or model.config.kind in POINTS:
        return None
    alone = len(ends.outputs) == 1 or _DEPTH in made.tensor.name.lower()
    if made.is_map and not (alone or model.asks_for(IMAGE)):
        return None  # one of several maps, such as that of lanes next to boxes
    if not (model.asks_for(IMAGE) or _is_picture(model, made)):
        return None
    pixels, whose = pixels_of(model, made)
    to = Appender(ends.graph, _NAME)
    name = free_name(ends.graph, _NAME)
    graph = to.with_output(made.pixels(to, _output_pixels(ends, made, pixels)), name)
    what = "may be a depth, or another value of each pixel" if made.is_map else "may be a picture"
    source = f"because '{made.tensor.name}' {what}{whose}"
    source += ", shown from its least (dark) to its largest (bright)" if made.is_map else ""
    spec = TaskSpec(IMAGE, ends.image.name, name, **pixels)
    return recognized(graph, spec, "makes a picture", source)
