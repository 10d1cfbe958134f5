"""Detectors of text by a map that says where text is: DB (Liao et al., 2020), and docTR's."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.device.runtime.agent.task import BGR, CORNER, LETTERBOX, OBB
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import KEEP, Head
from edgekit.host.compiler.tasks.usual_pixels import IMAGENET_SCALING

TEXT_MAP = "dbnet"  # head
_LABELS = ("text",)
# Of PaddleOCR's program: pixels of a map that are text, boxes that are sure, their growth.
_THRESHOLD, _SURE, _GROW = 0.3, 0.6, 1.5
_PIXELS = {
    "fit": CORNER,
    "fill": 0,
    "channels": BGR,
    **IMAGENET_SCALING,
}
# Of docTR's program: LinkNet's and FAST's maps count from the lower share on.
_LOGITS, _SHARES_OF_DOCTR, _SURE_OF_DOCTR = "logits", (0.1, 0.3), 0.1
_DOCTR_PIXELS = {
    "fit": LETTERBOX,
    "fill": 0,
    "mean": (203.49, 200.175, 196.86),
    "scale": (67.32, 70.0995, 73.185),
}
_BETWEEN = (ops.Reshape, ops.Transpose, ops.Add, ops.Mul, ops.Clamp, ops.Maximum)
_ENLARGED = 2  # times, by transposed convolutions behind each other


def text_map(ends: Ends) -> Iterator[Head]:
    """A map as large as the picture, from a sigmoid behind two transposed convolutions; docTR's
    files leave the sigmoid out."""
    image = ends.image
    (output, *others) = ends.outputs
    if others or sorted(output.shape) != sorted((1, 1, image.height, image.width)):
        return
    if image.channels != 3:
        return  # an autoencoder of digits
    is_chain = _is_enlarged(ends.graph, output)
    is_doctr = output.name == _LOGITS and not ends.is_from(output.name, ops.Logistic.kind)
    if not is_doctr and not is_text_map(ends.graph, output):
        return
    least = _SHARES_OF_DOCTR[is_chain] if is_doctr else _THRESHOLD
    sure = _SURE_OF_DOCTR if is_doctr else _SURE

    def rows(to: Appender) -> str:
        x = to.floats(output.name)
        x = to.add(ops.Logistic(), x) if is_doctr else x
        flat = to.add(ops.Reshape((1, image.height, image.width)), x)
        return to.add(ops.AreaBoxes(KEEP, least, sure, grow=_GROW), flat)

    whose, pixels = ("docTR's", _DOCTR_PIXELS) if is_doctr else ("DB's", _PIXELS)
    yield Head(TEXT_MAP, f"'{output.name}' is like {whose}", 1, rows, pixels, _LABELS, kind=OBB)


def is_text_map(graph: Graph, output: Tensor) -> bool:
    """Whether nothing but two transposed convolutions is before the sigmoid of an output: networks
    for segmentation join other layers there."""
    return _is_enlarged(graph, output, ops.Logistic.kind)


def _is_enlarged(graph: Graph, output: Tensor, behind: str = "") -> bool:
    """Whether two transposed convolutions follow each other at the end, and, if it is named, an
    operator of a kind `behind` them."""
    made, found, seen = graph.producer(), 0, not behind
    node = made.get(output.name)
    while node is not None and found < _ENLARGED:
        seen |= node.op.kind == behind
        if isinstance(node.op, ops.TransposeConv2D):
            found += 1
        elif not isinstance(node.op, (*_BETWEEN, ops.Logistic)):
            return False
        inputs = [name for name in node.inputs if name and graph.tensors[name].data is None]
        if len(inputs) != 1:
            return False
        node = made.get(inputs[0])
    return seen and found == _ENLARGED
