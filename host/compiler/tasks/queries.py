"""Heads of transformers, whose boxes need no suppression: DETR and its relatives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgekit.device.runtime.agent.task import STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.coco import COCO_CATEGORIES
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import (
    YOLO_LIMITS,
    Head,
    Limits,
    sizes_of,
    suppressed,
    to_corners,
)
from edgekit.host.compiler.tasks.ssd import boxes_and_scores
from edgekit.host.compiler.tasks.usual_pixels import IMAGENET_PIXELS
from edgekit.host.compiler.tasks.yolo import scores_behind

_MOST = 1000  # queries
_OF_CATEGORIES = 91  # scores for COCO's categories, the first for none
_ALL = 1.0  # overlap: no box is suppressed
_LIMITS = Limits(0.5, _ALL)  # of transformers' post_process_object_detection
_PIXELS = {"fit": STRETCH}
_RF_DETR = ("dets", "labels")
_MASKS = "masks"  # a further output of RF-DETR for segmentation, which is left out
_STRETCHED = {**IMAGENET_PIXELS, "fit": STRETCH}


def separate_queries(ends: Ends) -> Iterator[Head]:
    """Boxes [1, queries, 4] relative to the picture, and logits of classes. Those of DETR have a
    last class for nothing, and share a softmax; RT-DETR's and Deformable DETR's do not."""
    found = boxes_and_scores(ends)
    if found is None or not 1 < found[0].shape[1] <= _MOST:
        return
    boxes, logits = found
    if {boxes.name, logits.name} == {*_RF_DETR}:
        return
    done = ends.is_from(logits.name, ops.Logistic.kind)
    named = "box" in boxes.name.lower() and "logits" in logits.name.lower()
    if not (named or ends.is_from(boxes.name, ops.Logistic.kind)):
        return
    classes = logits.shape[2]
    if classes > 1 and classes not in (80, _OF_CATEGORIES) and not done:
        yield _head("detr", boxes, logits, ends, _STRETCHED, softmax=True)
    if classes not in (80, _OF_CATEGORIES + 1):
        yield _head("deformable-detr", boxes, logits, ends, _STRETCHED, softmax=False)
    if classes not in (_OF_CATEGORIES, _OF_CATEGORIES + 1):
        yield _head("rt-detr", boxes, logits, ends, _PIXELS, softmax=False)


def _head(
    name: str, boxes: Tensor, logits: Tensor, ends: Ends, pixels: Mapping[str, Any], softmax: bool
) -> Head:
    count = logits.shape[2]
    classes = count - 1 if softmax else count
    done = ops.Softmax.kind if softmax else ops.Logistic.kind  # where the file ends behind it
    is_done = ends.is_from(logits.name, done)

    def rows(to: Appender) -> str:
        scores = to.floats(logits.name)
        if not is_done:
            scores = to.add(ops.Softmax() if softmax else ops.Logistic(), scores)
        if softmax:
            scores, _ = to.add_all(ops.Split(2, (classes, 1)), scores)
        scores = to.add(ops.Transpose((0, 2, 1)), scores)
        wide = to.add(ops.Mul(), to.floats(boxes.name), to.constant(sizes_of(ends.image)))
        return suppressed(to, to_corners(to, wide), scores, _LIMITS)

    labels = ("", *COCO_CATEGORIES) if classes == _OF_CATEGORIES else ()
    return Head(name, f"outputs are like those of {name}", classes, rows, pixels, labels)


def rf_detr(ends: Ends) -> Iterator[Head]:
    """RF-DETR: `dets` [1, queries, 4] relative to the picture, and logits `labels`. Its scores
    begin with a class for nothing, or end with one, so that only COCO's have names."""
    named = {tensor.name: tensor for tensor in ends.outputs}
    if {*named} - {_MASKS} != {*_RF_DETR}:
        return
    boxes, logits = (named[name] for name in _RF_DETR)
    count = boxes.elements // 4
    if boxes.shape == (1, count, 4) and logits.shape[:-1] == (1, count) and count <= _MOST:
        yield _head("rf-detr", boxes, logits, ends, _STRETCHED, softmax=False)


def joined_queries(ends: Ends) -> Iterator[Head]:
    """RT-DETR in Ultralytics' files: [1, queries, 4 + classes] with scores. Texts and other
    sequences have such shapes, too, so that boxes and scores must be joined there."""
    output = ends.only(3)
    if output is None or not 1 < output.shape[1] <= _MOST:
        return
    if not scores_behind(ends, output):
        return
    fields = output.shape[2]

    def rows(to: Appender) -> str:
        box, scores = to.add_all(ops.Split(2, (4, fields - 4)), to.floats(output.name))
        wide = to.add(ops.Mul(), box, to.constant(sizes_of(ends.image)))
        scores = to.add(ops.Transpose((0, 2, 1)), scores)
        return suppressed(to, to_corners(to, wide), scores, YOLO_LIMITS._replace(overlap=_ALL))

    what = f"'{output.name}' is like that of RT-DETR in Ultralytics' files"
    yield Head("rt-detr", what, fields - 4, rows, _PIXELS)
