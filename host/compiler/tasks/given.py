"""Heads of detectors that select boxes themselves, or have corners and scores in two outputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgekit.device.runtime.agent.task import BGR, CORNER, LINEAR, STRETCH
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.coco import COCO, COCO_CATEGORIES
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import (
    STRETCHED_IMAGENET,
    UNNAMED,
    YOLO_PIXELS,
    Head,
    Limits,
    as_rows,
    sizes_of,
    suppressed,
)
from edgekit.host.compiler.tasks.hub import MMDEPLOY, PADDLE
from edgekit.host.compiler.tasks.sizes import KERAS_SIZE, ORIGINAL_SIZE, SCALE
from edgekit.host.compiler.tasks.unbatched import LENGTH, torchvision_outputs
from edgekit.host.compiler.tasks.yolo import NAS_PIXELS, box_counts

_PIXELS = {"fit": STRETCH, "mean": (0.0,), "scale": (255.0,)}
_PILLOW = {**_PIXELS, "filter": LINEAR}
_BYTES = {**_PIXELS, "scale": (1.0,)}  # which TensorFlow's detectors scale themselves
# Of detectors that scale pixels themselves, or take them from 0 to 255.
_MM_PIXELS = {"fit": CORNER, "fill": 114, "mean": (0.0,), "scale": (1.0,), "channels": BGR}
TENSORFLOW = "tensorflow"  # head, whose classes count from 1 and may be COCO's categories
_TENSORFLOW = ("detection_boxes", "detection_classes", "detection_scores")
_CUSTOM_VISION = ("detected_boxes", "detected_classes", "detected_scores")
_TORCHVISION = ("boxes", "labels", "scores")
_MMYOLO = "mmyolo"
# Names of the number of boxes, corners, scores and classes; the head, whose they are, and pixels.
_COUNTED = (
    (("num_dets", "det_boxes", "det_scores", "det_classes"), "efficient-nms",
     "TensorRT's EfficientNMS behind a YOLO", YOLO_PIXELS),
    (("num_dets", "boxes", "scores", "labels"), _MMYOLO,
     "MMYOLO or YOLO-World, pixels as its YOLOs take them", YOLO_PIXELS),
    (("num_predictions", "pred_boxes", "pred_scores", "pred_classes"), "yolo-nas-counted",
     "YOLO-NAS, which selects its boxes", NAS_PIXELS),
)  # fmt: skip
_MASKS = "masks"  # a further output of MMDeploy's detectors, which is left out
_KERAS_LIMITS = Limits(0.3, 0.45)  # of keras-yolo3's program
_V4_BOXES = 3  # of a cell
_V4_LIMITS = Limits(0.4, 0.6, single=True)  # of pytorch-YOLOv4's program
_PADDLE_LIMITS = Limits(0.25, 0.7)
_ZOO = ("bboxes", "labels", "scores")
_ROW = 7  # image, corners, class, score
_FLAT = "flat_predictions"  # the name of YOLO-NAS' output


def tensorflow_detections(ends: Ends) -> Iterator[Head]:
    """TensorFlow's detectors as ONNX files: boxes [1, n, 4] (top, left, bottom, right) relative to
    the picture, classes from 1 [1, n], scores [1, n]."""
    named = _named(ends)
    if not {*_TENSORFLOW} <= {*named} or ends.computes(ops.DetectionOutput.kind):
        return
    boxes, labels, scores = (named[name] for name in _TENSORFLOW)
    count = labels.elements
    if boxes.shape != (1, count, 4) or not labels.shape == scores.shape == (1, count):
        return

    def rows(to: Appender) -> str:
        sides = to.constant(sizes_of(ends.image)[..., ::-1])
        wide = to.add(ops.Mul(), to.floats(boxes.name), sides)
        top, left, bottom, right = to.add_all(ops.Split(2, (1, 1, 1, 1)), wide)
        label, score = (_column(to, each) for each in (labels, scores))
        return as_rows(to, label, score, [left, top, right, bottom])

    yield Head(TENSORFLOW, "outputs are those of TensorFlow's detectors", 0, rows, _BYTES, (), 1)


def torchvision_detections(ends: Ends) -> Iterator[Head]:
    """torchvision's detectors: corners [n, 4] in pixels, classes [n], scores [n]. Whether classes
    count from 0 or 1 is not known, so that they get no labels, unless there are as many as of
    those trained with COCO."""
    found = torchvision_outputs(ends.outputs)
    if found is None:
        return
    boxes, labels, scores = found
    count = labels.elements

    def rows(to: Appender) -> str:
        label = only_found(to, ends, _column(to, labels), count)
        corners = to.add(ops.Reshape((1, count, 4)), to.floats(boxes.name))
        return as_rows(to, label, _column(to, scores), [corners])

    scored = (node for node in ends.graph.nodes if isinstance(node.op, ops.Softmax | ops.Logistic))
    counts = {ends.graph.tensors[node.outputs[0]].shape[-1] for node in scored}
    known = ("", *COCO_CATEGORIES) if 1 + len(COCO_CATEGORIES) in counts else ()
    what = "outputs are those of torchvision's"
    what += f", labels of COCO because there are {len(known)} classes" if known else ""
    yield Head("torchvision", what, UNNAMED, rows, _PILLOW, known)


def custom_vision(ends: Ends) -> Iterator[Head]:
    """Custom Vision's: corners [n, 4] relative to the picture, classes from 0 [n], scores [n]."""
    named = {t.name: t for t in ends.outputs if not t.name.endswith(LENGTH)}
    if {*named} != {*_CUSTOM_VISION}:
        return
    boxes, labels, scores = (named[name] for name in _CUSTOM_VISION)
    count = labels.elements
    if boxes.elements != 4 * count or scores.elements != count:
        return

    def rows(to: Appender) -> str:
        label = only_found(to, ends, _column(to, labels), count)
        corners = to.add(ops.Reshape((1, count, 4)), to.floats(boxes.name))
        corners = to.add(ops.Mul(), corners, to.constant(sizes_of(ends.image)))
        return as_rows(to, label, _column(to, scores), [corners])

    what, pixels = "outputs are those of Custom Vision", {**_BYTES, "channels": BGR}
    yield Head("custom-vision", what, 0, rows, pixels)


def counted_boxes(ends: Ends) -> Iterator[Head]:
    """YOLOs that end in a selection: how many boxes it selected [1, 1], corners in pixels
    [1, n, 4], scores and classes [1, n]."""
    named = {name.rpartition("graph2_")[2]: t for name, t in _named(ends).items()}
    known = next((each for each in _COUNTED if {*each[0]} == {*named}), None)
    if known is None:
        return
    names, head, whose, pixels = known
    number, boxes, scores, labels = (named[name] for name in names)
    count = labels.elements
    if boxes.shape != (1, count, 4) or not labels.shape == scores.shape == (1, count):
        return
    made = [n for n in ends.graph.nodes if isinstance(n.op, ops.DetectionOutput)]
    classes = ends.graph.tensors[made[0].inputs[1] or ""].shape[1] if made else 0

    def rows(to: Appender) -> str:
        label = found_before(to, number.name, _column(to, labels), count)
        return as_rows(to, label, _column(to, scores), [to.floats(boxes.name)])

    # Of MMYOLO's networks RTMDet computes depthwise convolutions and takes other pixels.
    is_other = head == _MMYOLO and ends.computes(ops.DepthwiseConv2D.kind)
    doubt = f"outputs are those of {whose}, or of RTMDet, which takes others" if is_other else ""
    yield Head(head, f"outputs are those of {whose}", classes, rows, pixels, doubt=doubt)


def transformer_detections(ends: Ends) -> Iterator[Head]:
    """RT-DETR, D-FINE and DEIM with the size of the picture: as torchvision's, of a batch of one,
    but classes count from 0."""
    named = _named(ends)
    if {*named} != {*_TORCHVISION} or ORIGINAL_SIZE not in ends.graph.tensors:
        return
    boxes, labels, scores = (named[name] for name in _TORCHVISION)
    count = labels.elements
    if boxes.shape != (1, count, 4) or not labels.shape == scores.shape == (1, count):
        return

    def rows(to: Appender) -> str:
        label, score = (_column(to, each) for each in (labels, scores))
        return as_rows(to, label, score, [to.floats(boxes.name)])

    what = "outputs are those of RT-DETR and D-FINE"
    yield Head("rt-detr-selected", what, _modulus(ends, labels.name), rows, _PILLOW)


def _modulus(ends: Ends, labels: str) -> int:
    """The number of classes: the only integer that their numbers, which are the places of scores,
    are computed with; 0 if unknown."""
    made, tensors = ends.graph.producer(), ends.graph.tensors
    found: set[int] = set()
    ahead, seen = [labels], {labels}
    while ahead:
        node = made.get(ahead.pop())
        if node is None or not (node.op.elementwise or isinstance(node.op, ops.Reshape)):
            continue
        for name in filter(None, node.inputs):
            data = tensors[name].data
            if data is not None and data.size == 1 and data.dtype.kind == "i":
                found.add(int(data.item()))
            elif data is None and name not in seen:
                ahead.append(name)
                seen.add(name)
    return found.pop() if len(found) == 1 and min(found) > 1 else 0


def rows_of_paddle(ends: Ends) -> Iterator[Head]:
    """PaddleDetection's: [n, 6] of class, score and corners in pixels, and the number of rows [1],
    where the file takes the scale of the picture."""
    plain = [t for t in ends.outputs if not t.name.endswith(LENGTH)]
    wide = [t for t in plain if t.shape[1:] == (_ROW - 1,)]
    counts = [t for t in plain if t.shape == (1,) and t.dtype in (DType.I32, DType.I64)]
    if len(wide) != 1 or len(counts) != 1 or len(plain) != 2 or SCALE not in ends.graph.tensors:
        return
    output, count = wide[0], wide[0].shape[0]

    def rows(to: Appender) -> str:
        x = to.add(ops.Reshape((1, count, _ROW - 1)), to.floats(output.name))
        label, score, corners = to.add_all(ops.Split(2, (1, 1, 4)), x)
        return as_rows(to, found_before(to, counts[0].name, label, count), score, [corners])

    what = f"'{output.name}' is like PaddleDetection's"
    yield Head(PADDLE, what, 0, rows, _PIXELS)


def rows_of_mmdeploy(ends: Ends) -> Iterator[Head]:
    """MMDeploy's detectors: `dets` [1, n, 5] of corners in pixels and score, `labels` [1, n], which
    count from 0, and perhaps masks. The number of classes is that of the scores which the file
    selects by."""
    plain = {t.name: t for t in ends.outputs if not t.name.endswith(LENGTH)}
    if {*plain} - {_MASKS} != {"dets", "labels"}:
        return
    output, labels = plain["dets"], plain["labels"]
    count = labels.elements
    if output.shape != (1, count, 5) or labels.shape != (1, count) or labels.dtype.is_float:
        return
    ranked = [n.inputs[1] or "" for n in ends.graph.nodes if isinstance(n.op, ops.SelectBoxes)]
    classes = ends.graph.tensors[ranked[0]].shape[1] if len(ranked) == 1 else 0

    def rows(to: Appender) -> str:
        corners, score = to.add_all(ops.Split(2, (4, 1)), to.floats(output.name))
        return as_rows(to, only_found(to, ends, _column(to, labels), count), score, [corners])

    yield Head(MMDEPLOY, "outputs are those of MMDeploy", classes, rows, _MM_PIXELS)


def rows_of_yolov7(ends: Ends) -> Iterator[Head]:
    """YOLOv7 that selects: [n, 7] of image, corners in pixels, class and score. YOLO-NAS has the
    score first: the class is what was an integer."""
    wide = [t for t in ends.outputs if not t.name.endswith(LENGTH)]
    if len(wide) != 1 or not lengths_of(ends) or wide[0].shape[1:] != (_ROW,):
        return
    output, count = wide[0], wide[0].shape[0]
    last = [ends.is_from_integers(name) for name, _ in ends.parts(output.name)[-2:]]
    score_first = last == [False, True] or output.name.endswith(_FLAT)

    def rows(to: Appender) -> str:
        x = to.add(ops.Reshape((1, count, _ROW)), to.floats(output.name))
        _, corners, label, score = to.add_all(ops.Split(2, (1, 4, 1, 1)), x)
        label, score = (score, label) if score_first else (label, score)
        return as_rows(to, only_found(to, ends, label, count), score, [corners])

    whose, pixels = ("YOLO-NAS", NAS_PIXELS) if score_first else ("YOLOv7", YOLO_PIXELS)
    what = f"'{output.name}' is like {whose}'s, which selects its boxes"
    yield Head(f"{whose.lower()}-selected", what, 0, rows, pixels)


def rows_of_yolov9(ends: Ends) -> Iterator[Head]:
    """YOLOv9 that selects, as Hugging Face's folders for browsers have it: [n, 6] of corners in
    pixels, score and class in `outputs`, of stretched pictures."""
    plain = {t.name: t for t in ends.outputs if not t.name.endswith(LENGTH)}
    output = plain.get("outputs")
    if output is None or len(plain) != 1 or ends.image.name != "images":
        return
    if output.shape[1:] != (_ROW - 1,):
        return
    count = output.shape[0]

    def rows(to: Appender) -> str:
        x = to.add(ops.Reshape((1, count, _ROW - 1)), to.floats(output.name))
        corners, score, label = to.add_all(ops.Split(2, (4, 1, 1)), x)
        return as_rows(to, only_found(to, ends, label, count), score, [corners])

    what = "'outputs' is like YOLOv9's for browsers, which selects its boxes"
    yield Head("yolov9-selected", what, 0, rows, _PIXELS)


def yolov4(ends: Ends) -> Iterator[Head]:
    """pytorch-YOLOv4: `boxes` [1, n, 1, 4] as corners relative to the picture, and `confs`
    [1, n, classes]; or other names for three boxes in each cell, which no other family has so."""
    if len(ends.outputs) != 2:
        return
    boxes, scores = ends.outputs
    if len(scores.shape) != 3 or boxes.shape != (1, scores.shape[1], 1, 4):
        return
    named = {*_named(ends)} == {"boxes", "confs"}
    if not named and scores.shape[1] not in box_counts(ends.image, _V4_BOXES):
        return

    def rows(to: Appender) -> str:
        corners = to.add(ops.Reshape((1, scores.shape[1], 4)), to.floats(boxes.name))
        wide = to.add(ops.Mul(), corners, to.constant(sizes_of(ends.image)))
        each = to.add(ops.Transpose((0, 2, 1)), to.floats(scores.name))
        return suppressed(to, wide, each, _V4_LIMITS)

    yield Head("yolov4", "outputs are those of YOLOv4", scores.shape[2], rows, _PIXELS)


def keras_yolov3(ends: Ends) -> Iterator[Head]:
    """YOLOv3 of keras-yolo3, as in the ONNX model zoo, with the size of the picture: boxes
    [1, n, 4] (top, left, bottom, right) in its pixels and scores [1, classes, n] of all cells, and
    which of them the file selects."""
    plain = [t for t in ends.outputs if not t.name.endswith(LENGTH)]
    wide = [t for t in plain if len(t.shape) == 3 and t.shape[::2] == (1, 4)]
    if len(plain) != 3 or not wide or KERAS_SIZE not in ends.graph.tensors:
        return
    boxes, *others = sorted(plain, key=lambda t: t is not wide[0])
    scores = [t for t in others if len(t.shape) == 3 and t.shape[2] == boxes.shape[1]]
    if len(scores) != 1 or all(t.dtype.is_float for t in others):
        return
    classes = scores[0].shape[1]

    def rows(to: Appender) -> str:
        sides = to.add_all(ops.Split(2, (1, 1, 1, 1)), to.floats(boxes.name))
        top, left, bottom, right = sides
        corners = to.add(ops.Concat(2), left, top, right, bottom)
        return suppressed(to, corners, to.floats(scores[0].name), _KERAS_LIMITS)

    what = "outputs are those of keras-yolo3 for the size of the picture"
    yield Head("keras-yolov3", what, classes, rows, {**YOLO_PIXELS, "fill": 128})


def paddle_scores(ends: Ends) -> Iterator[Head]:
    """PaddleDetection's without a selection: corners [1, n, 4] in pixels and scores
    [1, classes, n]."""
    if len(ends.outputs) != 2:
        return
    boxes, scores = ends.outputs
    fits = len(scores.shape) == 3 and boxes.shape == (1, scores.shape[2], 4)
    parts = [name for name, _ in ends.parts(scores.name)] or [scores.name]
    certain = all(ends.is_from(name, ops.Logistic.kind) for name in parts)
    if not (fits and certain) or scores.shape[2] not in box_counts(ends.image, 1):
        return

    def rows(to: Appender) -> str:
        return suppressed(to, to.floats(boxes.name), to.floats(scores.name), _PADDLE_LIMITS)

    what = "outputs are like PaddleDetection's, which are not selected"
    yield Head(PADDLE, what, scores.shape[1], rows, _PIXELS)


def ssd_of_the_zoo(ends: Ends) -> Iterator[Head]:
    """SSD of MLPerf and of ONNX' model zoo: corners `bboxes` [1, n, 4] relative to the picture,
    classes of COCO from 1 [1, n] and scores [1, n]."""
    named = {tensor.name: tensor for tensor in ends.outputs}
    if {*named} != {*_ZOO}:
        return
    boxes, labels, scores = (named[name] for name in _ZOO)
    count = labels.elements
    if boxes.shape != (1, count, 4) or not labels.shape == scores.shape == (1, count):
        return

    def rows(to: Appender) -> str:
        wide = to.add(ops.Mul(), to.floats(boxes.name), to.constant(sizes_of(ends.image)))
        return as_rows(to, _column(to, labels), _column(to, scores), [wide])

    what = "outputs are those of MLPerf's SSD, labels of COCO, pixels as PyTorch's models take them"
    yield Head("ssd-selected", what, 0, rows, STRETCHED_IMAGENET, COCO, 1)


def _named(ends: Ends) -> dict[str, Tensor]:
    """Outputs by name, without the number that TensorFlow adds."""
    return {tensor.name.partition(":")[0]: tensor for tensor in ends.outputs}


def lengths_of(ends: Ends) -> list[Tensor]:
    return [t for t in ends.outputs if t.name.endswith(LENGTH) and t.shape == (1,)]


def _column(to: Appender, x: Tensor) -> str:
    wide = x.name if x.dtype is DType.F32 else to.add(ops.Convert(DType.F32), x.name)
    return to.add(ops.Reshape((1, x.elements, 1)), wide)


def only_found(to: Appender, ends: Ends, label: str, count: int) -> str:
    """Classes [1, n, 1], which are -1 behind the rows that were found."""
    if not (lengths := lengths_of(ends)):
        return label
    return found_before(to, lengths[0].name, label, count)


def found_before(to: Appender, length: str, label: str, count: int) -> str:
    """Classes [1, n, 1], which are -1 behind the first `length` [1] rows."""
    length = to.add(ops.Convert(DType.F32), length)
    length = to.add(ops.Reshape((1, 1, 1)), length)
    numbers = to.constant(np.arange(count)[None, :, None])
    none = to.constant(np.full((1, count, 1), -1))
    return to.add(ops.Where(), to.add(ops.Less(), numbers, length), label, none)
