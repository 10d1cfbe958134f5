"""Second inputs of models that take one picture: its size, or which of its pixels count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edgekit.host.compiler.ir.types import Array, DType, Graph, Shape
from edgekit.host.compiler.tasks.ends import InputImage, image_of

ORIGINAL_SIZE, SCALE, KERAS_SIZE = "orig_target_sizes", "scale_factor", "image_shape"
_PAIR: Shape = (1, 2)
# What an input of each name gets for a picture as large as the input. Boxes are then in its pixels.
_VALUES: dict[str, Callable[[InputImage], tuple[float, ...]]] = {
    ORIGINAL_SIZE: lambda image: (image.width, image.height),  # RT-DETR, D-FINE, DEIM
    "im_shape": lambda image: (image.height, image.width),  # PaddleDetection
    KERAS_SIZE: lambda image: (image.height, image.width),  # keras-yolo3
    SCALE: lambda _: (1, 1),
}
_MASK = "pixel_mask"  # 1 for each pixel that is not padding: Hugging Face's DETR
_DTYPES = (DType.F32, DType.I32, DType.I64, DType.BOOL)


def with_sizes(graph: Graph) -> Graph:
    """The graph with the picture as its only input, where the others are as expected for a picture
    that fills it; a note says so. Any other graph as it is."""
    others = [name for name in graph.inputs if name in _VALUES or name == _MASK]
    rest = tuple(name for name in graph.inputs if name not in others)
    image = image_of(replace(graph, inputs=rest), relative=False)
    if not others or image is None:
        return graph
    tensors = dict(graph.tensors)
    for name in others:
        data = _value(image, name, tensors[name].shape)
        if data is None or tensors[name].dtype not in _DTYPES:
            return graph
        tensors[name] = replace(tensors[name], data=data.astype(tensors[name].dtype.numpy))
    named = " and ".join(f"'{name}'" for name in others)
    note = f"needs no {named}: these are constants for a picture of {image.width} x {image.height}"
    return replace(graph, inputs=rest, tensors=tensors, notes=(*graph.notes, note))


def _value(image: InputImage, name: str, shape: Shape) -> Array | None:
    if name == _MASK:
        return np.ones(shape) if len(shape) == 3 and shape[0] == 1 else None
    return np.array([_VALUES[name](image)]) if shape == _PAIR else None
