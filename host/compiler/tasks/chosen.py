"""Heads of detectors whose files choose the best class of each box, but leave it to others which
boxes overlap: those of DeepStream-Yolo's exporter, and of Qualcomm AI Hub."""

from __future__ import annotations

from collections.abc import Iterator

from edgekit.device.runtime.agent.task import STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.candidates import kept_rows
from edgekit.host.compiler.tasks.coco import COCO_CATEGORIES
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import TOP, YOLO_PIXELS, Head, as_rows, to_corners
from edgekit.host.compiler.tasks.yolo import X_PIXELS, box_counts, chooses_class, has_sizes

_THREE = (("boxes", "scores", "classes"), ("boxes", "scores", "labels"))
_HUB, _HUB_DETR = ("boxes", "scores", "class_idx"), ("boxes", "logits", "classes")
HUB_MASKS = ("boxes", "scores", "masks", "class_idx", "protos")
_OF_CATEGORIES = 91  # classes of COCO, the first for none


def best_of_classes(ends: Ends) -> Iterator[Head]:
    """DeepStream-Yolo's: [1, n, 6] of corners in pixels, score and class, which was an integer.
    Only YOLOs that have boxes and scores of classes in one tensor before: others take pixels in
    different ways."""
    output = ends.only(3)
    if output is None or not chooses_class(ends, output):
        return
    counts = box_counts(ends.image, 1) | box_counts(ends.image, 3)
    (box, _), (score, _), (label, _) = ends.parts(output.name)
    source = _source(ends, box)
    if output.shape[1] not in counts or not source or source != _source(ends, score):
        return

    def rows(to: Appender) -> str:
        parts = to.add_all(ops.Split(2, (4, 1, 1)), to.floats(output.name))
        return _kept(to, *parts)

    decodes = ends.computes(ops.Exp.kind)
    what = f"'{output.name}' is like DeepStream-Yolo's"
    pixels = X_PIXELS if decodes else YOLO_PIXELS
    yield Head("deepstream-yolo", what, ends.choices(label), rows, pixels)


def centers_and_best(ends: Ends) -> Iterator[Head]:
    """Of earlier files for DeepStream: `boxes` [1, n, 4], `scores` and `classes` [1, n, 1]. Only
    boxes of a YOLOv8 that are seen to be centers and sizes: others' are corners."""
    names = tuple(tensor.name for tensor in ends.outputs)
    if names not in _THREE:
        return
    boxes, scores, labels = ends.outputs
    count, source = labels.elements, _source(ends, boxes.name)
    parts = ends.parts(source) if source and source == _source(ends, scores.name) else ()
    shaped = boxes.shape == (1, count, 4) and labels.shape == scores.shape == (1, count, 1)
    if not shaped or not parts or not has_sizes(ends, parts[0][0]):
        return

    def rows(to: Appender) -> str:
        centers, score, label = _columns(to, boxes, scores, labels)
        return _kept(to, to_corners(to, centers), score, label)

    what = "outputs are those of a YOLO for DeepStream"
    yield Head("deepstream-apart", what, ends.choices(labels.name), rows)


def hub_boxes(ends: Ends) -> Iterator[Head]:
    """Qualcomm AI Hub's YOLOs: corners in pixels [1, n, 4], scores and classes [1, n]; and its
    DETR, whose classes are COCO's categories."""
    named = {tensor.name: tensor for tensor in ends.outputs}
    names = next((each for each in (_HUB, _HUB_DETR) if {*each} == {*named}), None)
    if names is None:
        return
    boxes, scores, labels = (named[name] for name in names)
    count = labels.elements
    if boxes.shape != (1, count, 4) or not labels.shape == scores.shape == (1, count):
        return
    chosen = ends.choices(labels.name)
    if names == _HUB:
        what = "outputs are those of Qualcomm AI Hub's YOLOs"
        yield Head(
            "ai-hub", what, chosen, lambda to: _kept(to, *_columns(to, boxes, scores, labels))
        )
    elif chosen == _OF_CATEGORIES:

        def rows(to: Appender) -> str:
            corners, score, label = _columns(to, boxes, scores, labels)
            return as_rows(to, label, score, [corners])

        what = "outputs are those of Qualcomm AI Hub's DETR"
        yield Head("ai-hub-detr", what, chosen, rows, {"fit": STRETCH}, ("", *COCO_CATEGORIES))


def hub_instances(ends: Ends) -> Head | None:
    """Qualcomm AI Hub's YOLOs with masks: as its others, with weights of the maps [1, n, maps]."""
    named = {tensor.name: tensor for tensor in ends.outputs}
    if {*named} != {*HUB_MASKS}:
        return None
    boxes, scores, weights, labels, maps = (named[name] for name in HUB_MASKS)
    count, each = labels.elements, weights.shape[-1]
    shaped = boxes.shape == (1, count, 4) and labels.shape == scores.shape == (1, count)
    if not shaped or weights.shape != (1, count, each) or each not in maps.shape[1::2]:
        return None

    def rows(to: Appender) -> str:
        return _kept(to, *_columns(to, boxes, scores, labels), to.floats(weights.name))

    what = "outputs are those of Qualcomm AI Hub's YOLOs with masks"
    return Head("yolo-seg", what, ends.choices(labels.name), rows)


def _columns(to: Appender, boxes: Tensor, scores: Tensor, labels: Tensor) -> tuple[str, str, str]:
    """Corners [1, n, 4], scores and classes [1, n, 1]."""
    column = ops.Reshape((1, labels.elements, 1))
    whole = labels.quant is None and not labels.dtype.is_float
    number = to.add(ops.Convert(DType.F32), labels.name) if whole else to.floats(labels.name)
    score, label = (to.add(column, each) for each in (to.floats(scores.name), number))
    return to.floats(boxes.name), score, label


def _kept(to: Appender, corners: str, score: str, label: str, *more: str) -> str:
    """Rows of the best boxes of all that overlap no better one of their class."""
    total = to.shape(score)[1]
    count = min(TOP, total)
    score, order = to.add_all(ops.TopK(count), to.add(ops.Reshape((1, total)), score))
    order = to.add(ops.Reshape((count,)), order)
    label, corners, *rest = (to.add(ops.Gather(1), x, order) for x in (label, corners, *more))
    score = to.add(ops.Reshape((1, count, 1)), score)
    return kept_rows(to, label, score, corners, *rest)


def _source(ends: Ends, name: str) -> str:
    """The tensor of which parts, products or maxima are the tensor; empty if there is none."""
    node = ends.maker(name)
    while node is not None and isinstance(node.op, ops.MatMul | ops.Mul | ops.ReduceMax):
        node = ends.maker(node.inputs[0] or "")
    if node is None or not isinstance(node.op, ops.Split | ops.StridedSlice):
        return ""
    return node.inputs[0] or ""
