"""DB's detectors of text (Liao et al., 2020): a map that says where text is."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.device.runtime.agent.task import BGR, CORNER, OBB
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import KEEP, Head
from edgekit.host.compiler.tasks.usual_pixels import IMAGENET_SCALING

_LABELS = ("text",)
# Of PaddleOCR's program: pixels of a map that are text, boxes that are sure, their growth.
_THRESHOLD, _SURE, _GROW = 0.3, 0.6, 1.5
_PIXELS = {
    "fit": CORNER,
    "fill": 0,
    "channels": BGR,
    **IMAGENET_SCALING,
}
_BETWEEN = (ops.Reshape, ops.Transpose, ops.Add, ops.Mul, ops.Clamp, ops.Maximum)
_ENLARGED = 2  # times, by transposed convolutions behind each other


def text_map(ends: Ends) -> Iterator[Head]:
    """A map as large as the picture, from a sigmoid behind two transposed convolutions."""
    image = ends.image
    (output, *others) = ends.outputs
    if others or sorted(output.shape) != sorted((1, 1, image.height, image.width)):
        return
    if image.channels != 3:
        return  # an autoencoder of digits
    if not is_text_map(ends.graph, output):
        return

    def rows(to: Appender) -> str:
        flat = to.add(ops.Reshape((1, image.height, image.width)), to.floats(output.name))
        return to.add(ops.AreaBoxes(KEEP, _THRESHOLD, _SURE, grow=_GROW), flat)

    yield Head("dbnet", f"'{output.name}' is like DB's", 1, rows, _PIXELS, _LABELS, kind=OBB)


def is_text_map(graph: Graph, output: Tensor) -> bool:
    """Whether nothing but two transposed convolutions is before the sigmoid of an output: networks
    for segmentation join other layers there."""
    made, found, shares = graph.producer(), 0, False
    node = made.get(output.name)
    while node is not None and found < _ENLARGED:
        shares |= isinstance(node.op, ops.Logistic)
        if isinstance(node.op, ops.TransposeConv2D):
            found += 1
        elif not isinstance(node.op, (*_BETWEEN, ops.Logistic)):
            return False
        inputs = [name for name in node.inputs if name and graph.tensors[name].data is None]
        if len(inputs) != 1:
            return False
        node = made.get(inputs[0])
    return shares and found == _ENLARGED
