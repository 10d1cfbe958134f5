"""Heads of SSD: results of an operator that selects, or boxes and scores of all priors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.task import BGR, FIELDS, STRETCH
from edgekit.host.compiler.inputs import Anchors, DetectionNotes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.coco import COCO_CATEGORIES
from edgekit.host.compiler.tasks.ends import Ends, InputImage
from edgekit.host.compiler.tasks.faces import is_ultra_face
from edgekit.host.compiler.tasks.heads import (
    SCALES,
    Head,
    Limits,
    as_rows,
    prior_boxes,
    selected,
    sizes_of,
    suppressed,
)
from edgekit.host.compiler.tasks.segments import VOC

_PIXELS = {"fit": STRETCH}
_MOBILE_PIXELS = {"fit": STRETCH, "mean": (127.0,), "scale": (128.0,)}
_VGG_PIXELS = {"fit": STRETCH, "mean": (123.0, 117.0, 104.0), "scale": (1.0,)}
_TORCH_VGG_PIXELS = {
    "fit": STRETCH,
    "mean": (0.48235 * 255, 0.45882 * 255, 0.40784 * 255),
    "scale": (1.0,),
}
_LITE_PIXELS = {"fit": STRETCH, "mean": (127.5,), "scale": (127.5,)}
_CAFFE_PIXELS = {"fit": STRETCH, "channels": BGR, "mean": (104.0, 117.0, 123.0), "scale": (1.0,)}
_CAFFE_FACE = {**_CAFFE_PIXELS, "mean": (104.0, 177.0, 123.0)}
_CAFFE_MOBILE = {**_CAFFE_PIXELS, "mean": (127.5,), "scale": (127.5,)}
_MASKS = "pred_masks"
_LIMITS = Limits(0.4, 0.45)  # of pytorch-ssd's program
_LITE_LIMITS = Limits(0.4, 0.55)
_ANCHORED_LIMITS = Limits(0.3, 0.5, single=True)
# Sizes of the boxes of SSD with VGG: torchvision's, and those of the paper for Pascal VOC.
_COCO_SCALES = (0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05)
_VOC_SCALES = (0.1, 0.2, 0.37, 0.54, 0.71, 0.88, 1.05)
_MOBILE_COUNT, _VGG_COUNT = 3000, 8732  # priors of SSD with MobileNet and with VGG


def postprocessed_ssd(ends: Ends, notes: DetectionNotes) -> Iterator[Head]:
    """The head of a model that ends in TFLite_Detection_PostProcess, whose results are boxes (top,
    left, bottom, right relative to the picture), classes, scores, count."""
    graph, results = ends.graph, notes.results
    if len(results) != 4 or not set(results) <= set(graph.outputs):
        return
    boxes, classes, scores, _ = results
    count = math.prod(graph.tensors[scores].shape)
    if math.prod(graph.tensors[boxes].shape) != 4 * count:
        return

    def rows(to: Appender) -> str:
        values = [to.floats(name) for name in (boxes, classes, scores)]
        wide, label, score = (
            to.add(ops.Reshape((1, count, size)), name)
            for name, size in zip(values, (4, 1, 1), strict=True)
        )
        wide = to.add(ops.Mul(), wide, to.constant(sizes_of(ends.image)[..., ::-1]))
        top, left, bottom, right = to.add_all(ops.Split(2, (1, 1, 1, 1)), wide)
        return as_rows(to, label, score, [left, top, right, bottom])

    what = "it ends in TFLite_Detection_PostProcess"
    yield Head("ssd", what, 0, rows, _PIXELS, counted=notes.classes, **_usual_pixels(ends))


def anchored_ssd(ends: Ends, anchors: Anchors | None) -> Iterator[Head]:
    """Detectors for MediaPipe's ObjectDetector, whose metadata has the anchors: outputs [1, n, 4]
    of y, x, height and width, and [1, n, classes]."""
    found = boxes_and_scores(ends)
    if anchors is None or found is None or len(anchors.boxes) != found[0].shape[1]:
        return
    boxes, scores = found
    order = [1, 0]  # y before x
    centers, sizes = anchors.boxes[None, :, order], anchors.boxes[None, :, 2:][..., order]
    across, down, wide, high = anchors.scales

    def rows(to: Appender) -> str:
        shift, size = to.add_all(ops.Split(2, (2, 2)), to.floats(boxes.name))
        shift = to.add(ops.Mul(), shift, to.constant(sizes / (down, across)))
        size = to.add(ops.Mul(), size, to.constant(np.array([[[1 / high, 1 / wide]]])))
        size = to.add(ops.Exp(), size) if anchors.grows else size
        parts = (
            to.add(ops.Add(), shift, to.constant(centers)),
            to.add(ops.Mul(), size, to.constant(sizes)),
        )
        flip = to.constant(np.array(order), DType.I64)
        box = to.add(ops.Concat(2), *(to.add(ops.Gather(2), part, flip) for part in parts))
        box = to.add(ops.Mul(), box, to.constant(sizes_of(ends.image)))
        each = to.floats(scores.name)
        each = to.add(ops.Logistic(), each) if anchors.logits else each
        return selected(to, box, to.add(ops.Transpose((0, 2, 1)), each), _ANCHORED_LIMITS)

    classes = scores.shape[2]
    what = "MediaPipe's metadata has the anchors of its boxes"
    yield Head("mediapipe-ssd", what, classes, rows, _PIXELS, counted=classes,
               **_usual_pixels(ends))  # fmt: skip


def _usual_pixels(ends: Ends) -> dict[str, Any]:
    """How TensorFlow's detectors of floats take pixels, unless they scale them themselves."""
    graph, name = ends.graph, ends.image.name
    first = (node.op for node in graph.nodes if name in node.inputs)
    if graph.tensors[name].dtype is not DType.F32 or any(isinstance(op, SCALES) for op in first):
        return {}
    usual = {"mean": (127.5,), "scale": (127.5,)}
    return {"usual": usual, "usual_of": "pixels from -1 to 1, as TensorFlow's detectors take them"}


def caffe_ssd(ends: Ends) -> Iterator[Head]:
    """SSD of Caffe, which ends in DetectionOutput: rows of FIELDS with corners relative to the
    picture, whose classes count from the background. Nothing states pixels: those of MobileNet-SSD
    (Chuanqi) are known by its depthwise layers, OpenCV's detector of faces by what it does with
    pixels first, others are as SSD's authors take them."""
    output = ends.only(4)
    node = ends.maker(output.name) if output else None
    if output is None or node is None or not isinstance(node.op, ops.DetectionOutput):
        return
    count, classes = output.shape[2], ends.graph.tensors[node.inputs[1] or ""].shape[1] - 1
    mobile = ends.computes(ops.DepthwiseConv2D.kind)
    first = (n.op for n in ends.graph.nodes if ends.image.name in n.inputs)
    faces = classes == 1 and not mobile and any(isinstance(op, SCALES) for op in first)

    def rows(to: Appender) -> str:
        x = to.add(ops.Reshape((1, count, FIELDS)), to.floats(output.name))
        _, label, score, corners = to.add_all(ops.Split(2, (1, 1, 1, 4)), x)
        wide = to.add(ops.Mul(), corners, to.constant(sizes_of(ends.image)))
        return as_rows(to, label, score, [wide])

    whose = "MobileNet-SSD" if mobile else "OpenCV's detector of faces" if faces else "SSD"
    pixels = _CAFFE_MOBILE if mobile else _CAFFE_FACE if faces else _CAFFE_PIXELS
    what = f"it ends in Caffe's DetectionOutput, pixels as {whose} takes them"
    labels: tuple[str, ...] = ("face",) if faces else ()
    if classes == len(VOC) - 1:
        what, labels = f"{what}, labels of Pascal VOC because there are {classes} classes", VOC[1:]
    yield Head("caffe-ssd", what, classes, rows, pixels, labels, 1)


def separate_ssd(ends: Ends) -> Iterator[Head]:
    """Boxes [1, n, 4] and scores [1, n, classes] of which the first is the background.

    pytorch-ssd's files (jetson-inference trains such) decode the boxes and apply a softmax;
    torchvision's heads, and others of 300 pixels, leave both to the program that runs them.
    """
    found = boxes_and_scores(ends)
    if found is None or is_ultra_face(ends):
        return
    boxes, scores = found
    count, classes = scores.shape[1:]
    is_known = ends.shapes().keys() == {"boxes", "scores"} or count in (_MOBILE_COUNT, _VGG_COUNT)
    decodes, softmax = ends.computes(ops.Exp.kind), ends.is_from(scores.name, ops.Softmax.kind)
    if is_known and decodes and softmax and classes > 1:
        yield _decoded(ends.image, boxes, scores)
    if not decodes and not softmax and ends.image.height == ends.image.width:
        yield from _undecoded(ends.image, boxes, scores)


def boxes_and_scores(ends: Ends) -> tuple[Tensor, Tensor] | None:
    """Two outputs [1, n, 4] and [1, n, classes]; None for others, or if it is not clear which is
    which. Masks of Hugging Face's DETR are left out."""
    outputs = [t for t in ends.outputs if t.name != _MASKS]
    if len(outputs) != 2 or any(len(t.shape) != 3 or t.shape[0] != 1 for t in outputs):
        return None
    # With four classes, the name tells boxes from scores.
    wide = [t for t in outputs if t.shape[2] == 4]
    named = [t for t in wide if "box" in t.name.lower()] if len(wide) > 1 else wide
    if len(named) != 1:
        return None
    (scores,) = (t for t in outputs if t is not named[0])
    return (named[0], scores) if scores.shape[:2] == named[0].shape[:2] else None


def _decoded(image: InputImage, boxes: Tensor, scores: Tensor) -> Head:
    classes = scores.shape[2] - 1

    def rows(to: Appender) -> str:
        corners = to.add(ops.Mul(), to.floats(boxes.name), to.constant(sizes_of(image)))
        return suppressed(to, corners, _foreground(to, to.floats(scores.name), classes), _LIMITS)

    pixels = _VGG_PIXELS if scores.shape[1] == _VGG_COUNT else _MOBILE_PIXELS
    return Head("pytorch-ssd", "outputs are like pytorch-ssd's", classes, rows, pixels)


def _undecoded(image: InputImage, boxes: Tensor, scores: Tensor) -> Iterator[Head]:
    _, count, outputs = scores.shape
    own = outputs != len(COCO_CATEGORIES) + 1  # torchvision's file is for COCO
    for name, side, made, pixels, limits in (
        ("torchvision-ssd", 300, _vgg_priors(_COCO_SCALES), _TORCH_VGG_PIXELS, _LIMITS),
        *((("ssd300", 300, _vgg_priors(_VOC_SCALES), _VGG_PIXELS, _LIMITS),) if own else ()),
        ("torchvision-ssdlite", 320, _lite_priors(), _LITE_PIXELS, _LITE_LIMITS),
    ):
        if (len(made), side) != (count, image.width):
            continue

        def rows(to: Appender, priors: Array = made * side, limits: Limits = limits) -> str:
            found = prior_boxes(to, to.floats(boxes.name), priors)
            shares = to.add(ops.Softmax(), to.floats(scores.name))
            return selected(to, found, _foreground(to, shares, outputs - 1), limits)

        labels = COCO_CATEGORIES if outputs - 1 == len(COCO_CATEGORIES) else ()
        what = f"outputs have the shapes of {name}'s"
        yield Head(name, what, outputs - 1, rows, pixels, labels)


def _foreground(to: Appender, scores: str, classes: int) -> str:
    """Scores [1, c, n] without the background."""
    _, each = to.add_all(ops.Split(2, (1, classes)), scores)
    return to.add(ops.Transpose((0, 2, 1)), each)


def _vgg_priors(scales: Sequence[float]) -> Array:
    ratios, steps = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,)), (8, 16, 32, 64, 100, 300)
    cells = zip((38, 19, 10, 5, 3, 1), (300 / step for step in steps), strict=True)
    return _priors(list(cells), scales, ratios)


def _lite_priors() -> Array:
    scales = (0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.0)
    return _priors([(cells, cells) for cells in (20, 10, 5, 3, 2, 1)], scales, ((2, 3),) * 6)


def _priors(
    grids: Sequence[tuple[int, float]],
    scales: Sequence[float],
    ratios: Sequence[tuple[int, ...]],
) -> Array:
    """Centers and sizes [n, 4] relative to the picture. Of each grid: its cells along an edge, and
    how many of them the picture would have along it."""
    made = []
    for (cells, span), scale, larger, several in zip(
        grids, scales, scales[1:], ratios, strict=False
    ):
        middle = math.sqrt(scale * larger)
        sides = [(scale, scale), (middle, middle)]
        for ratio in several:
            long, short = scale * math.sqrt(ratio), scale / math.sqrt(ratio)
            sides += [(long, short), (short, long)]
        for cell in range(cells * cells):
            x, y = (cell % cells + 0.5) / span, (cell // cells + 0.5) / span
            made += [(x, y, min(wide, 1.0), min(high, 1.0)) for wide, high in sides]
    return np.array(made, np.float32)
