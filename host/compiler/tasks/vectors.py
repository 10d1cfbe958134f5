"""Models that make a vector of a picture: alike pictures have alike vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.task import CROP
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.classes import class_count
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.known import KnownModel
from edgekit.host.compiler.tasks.shares import is_share
from edgekit.host.compiler.tasks.usual_pixels import CLIP_PIXELS

_LEAST = 8  # numbers of a vector
_TINY = 1e-12
# Rows and columns of pictures, and how long their vectors may be.
_FACE, _FACE_LENGTHS = (112, 112), (128, 256, 512)
_PERSONS, _PERSON_LENGTHS = ((256, 128), (128, 64)), (128, 256, 512, 768, 1024, 2048)
_SIGNED: dict[str, Any] = {"mean": (127.5,), "scale": (127.5,)}
_FACE_NET, _FACE_NET_LENGTH = (160, 160), 512
_FACE_NET_PIXELS: dict[str, Any] = {"mean": (127.5,), "scale": (128.0,)}
_CLIP, _CLIP_LENGTHS = "clip", (512, 640, 768, 1024)
# Outputs of Hugging Face's encoders of pictures; of those kinds the first token is the vector.
_TOKENS = "last_hidden_state"
EMBEDDINGS = ("image_embeds", "pooler_output", _TOKENS)
_FIRST_TOKEN = ("dinov2", "dinov2_with_registers", "dinov3_vit")


def vector_of(ends: Ends) -> Tensor | None:
    """The only output that is a vector, whose other axes are 1 long. [1, n, 1] is a value for each
    of n items, such as the scores of a detector's boxes."""
    found = [
        tensor
        for tensor in ends.outputs
        if _LEAST <= max(tensor.shape, default=0) == math.prod(tensor.shape)
        and not (len(tensor.shape) == 3 and tensor.shape[-1] == 1)
    ]
    return found[0] if len(found) == 1 else None


def first_token(model: KnownModel) -> Tensor | None:
    """The only output of a model whose first token is the vector of the picture."""
    output = model.ends.only(3)
    kind = model.config.kind in _FIRST_TOKEN
    return output if output is not None and kind and output.name == _TOKENS else None


def usual_vector(model: KnownModel, vector: Tensor) -> tuple[str, dict[str, Any]]:
    """What a vector may be by the size of the picture and its own, and how pixels become values:
    of a face, as InsightFace's models, or of a person, as those for finding people again."""
    image, length = model.ends.image, math.prod(vector.shape)
    size = (image.height, image.width)
    if image.channels != 3 or is_share(model.ends.graph, vector.name):
        return "", {}
    if size == _FACE and length in _FACE_LENGTHS:
        named, pixels = model.named_pixels
        pixels = model.pixels(0) or pixels or (_SIGNED if model.is_open else {})
        taken = f"pixels as {named or 'InsightFace'}'s models take them"
        return f"may be the vector of a face, {taken}", pixels
    if size in _PERSONS and length in _PERSON_LENGTHS and model.torch_pixels:
        what = "may be the vector of a person, pixels as PyTorch's models take them"
        return what, model.pixels(0) or model.torch_pixels
    if size == _FACE_NET and length == _FACE_NET_LENGTH and model.torch_pixels:
        what = "may be the vector of a face, pixels as facenet-pytorch takes them"
        return what, model.pixels(0) or _FACE_NET_PIXELS
    is_clip = _CLIP in model.path.stem.lower() and image.height == image.width
    if is_clip and length in _CLIP_LENGTHS and model.is_open:
        what = "may be that of a picture, by the name of the file, pixels as CLIP takes them"
        return what, model.pixels(0) or {"fit": CROP, **CLIP_PIXELS}
    return "", {}


def undecided_vector(model: KnownModel) -> str:
    """What is missing where the only output is a vector of scores or features; else empty."""
    tokens = model.ends.only(3)
    if tokens is not None and tokens.name == _TOKENS:
        return (
            f"'{_TOKENS}' has a vector for each part of a picture, not one of the whole; its "
            "decoder may be another file, or config.json of its folder may say which one is meant"
        )
    vector = vector_of(model.ends) or model.ends.outputs[0]
    count = class_count(vector.shape)
    if count < 2 or len(model.ends.outputs) > 1:
        return ""
    return (
        f"'{vector.name}' may be {count} scores, whose labels no file lists, or the vector of a "
        f"picture: put labels into {model.path.stem}.txt next to it, one in each line, or use "
        "--task embed, with --mean and --scale of its pixels"
    )


def unit_vector(to: Appender, tensor: Tensor) -> str:
    """Appends what gives the vector, or the first token of several, length 1: f32 [1, n]."""
    x, count = to.floats(tensor.name), max(tensor.shape)
    if count != math.prod(tensor.shape):
        first, count = to.constant([0], DType.I32), tensor.shape[2]
        x = to.add(ops.Gather(1), x, first)
    x = to.add(ops.Reshape((1, count)), x)
    squares = to.add(ops.ReduceSum((1,)), to.add(ops.Mul(), x, x))
    length = to.add(ops.Sqrt(), to.add(ops.Reshape((1, 1)), squares))
    length = to.add(ops.Maximum(), length, to.constant(np.full((1, 1), _TINY)))
    return to.add(ops.Div(), x, length)
