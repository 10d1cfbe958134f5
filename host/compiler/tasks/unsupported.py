"""Models that are known, but show no results here: what they are, and what to use instead."""

from __future__ import annotations

from edgekit.host.compiler.ir.types import Graph, Shape
from edgekit.host.compiler.tasks.ends import InputImage

_MTCNN = (
    "it may be one of MTCNN's three networks, which find faces only together, in pictures of many "
    "sizes; use a detector of one, such as YuNet or face_detection_back.tflite"
)
_EFFICIENT_DET = (
    "outputs are like EfficientDet's, whose anchors the file does not state; export it with "
    "TFLite_Detection_PostProcess, or with MediaPipe's metadata"
)
_COLORS = (
    "it may give colors of a gray picture, as a and b of CIELAB, which are not put together here"
)
_TEN_VAD = (
    "it is like TEN VAD's, which takes features of sound that are not computed here; use Silero's "
    "silero_vad.onnx"
)
FSMN = (
    "it is like FSMN-VAD's, which takes features of sound that are not computed here; use Silero's "
    "silero_vad.onnx"
)
_ENCODER = (
    "it is an encoder of sound: put its decoder, decoder_model.onnx, and the .json files of both "
    "next to it"
)
_LATER_STAGES = {24: [(1, 2), (1, 4)], 48: [(1, 2), (1, 4), (1, 10)]}  # by the input's size
_ANCHORS, _LEVELS = 9, (8, 16, 32, 64, 128)  # of a cell, and strides
_TEN_INPUTS = [(1, 3, 41), *[(1, 64)] * 4]
_SOUNDS, _HIDDEN = ("input_features", "input_values"), ("last_hidden_state",)  # of Optimum
_FSMN_CACHE, _FSMN_STATES = (1, 128, 19, 1), 400


def known_detector(graph: Graph, image: InputImage) -> str:
    """What a model of pictures is; empty if that is not known."""
    shapes = _shapes(graph, graph.outputs)
    if _has_efficient_levels(shapes, image):
        return _EFFICIENT_DET
    if image.channels == 1 and shapes == [(1, 2, image.height, image.width)]:
        return _COLORS
    if image.height == image.width and sorted(shapes) == _LATER_STAGES.get(image.height):
        return _MTCNN
    if len(shapes) != 2 or any(shape[:1] != (1,) for shape in shapes):
        return ""
    maps = [shape[1:] for shape in shapes]
    if all(len(shape) == 3 for shape in maps):
        for channel in (0, 2):
            rest = {shape[:channel] + shape[channel + 1 :] for shape in maps}
            if sorted(shape[channel] for shape in maps) == [2, 4] and len(rest) == 1:
                return _MTCNN
    boxes = _ANCHORS * sum(map(image.cells, _LEVELS))
    rows = sorted(shape[1] for shape in maps if len(shape) == 2 and shape[0] == boxes)
    return _EFFICIENT_DET if len(rows) == 2 and 4 in rows else ""


def _has_efficient_levels(shapes: list[Shape], image: InputImage) -> bool:
    """Whether scores and boxes of each level are outputs of their own."""
    grids = [image.grid(stride) for stride in _LEVELS]
    found = [(shape[1], shape[2:]) for shape in shapes if len(shape) == 4]
    boxes = [grid for fields, grid in found if fields == 4 * _ANCHORS]
    return boxes == grids and len(shapes) == len(found) == 2 * len(grids)


def known_listener(graph: Graph) -> str:
    """The same of a model of sound."""
    if graph.outputs == _HIDDEN and len(graph.inputs) == 1 and graph.inputs[0] in _SOUNDS:
        return _ENCODER
    shapes = _shapes(graph, graph.inputs)
    if sorted(shapes, key=len, reverse=True) == _TEN_INPUTS:
        return _TEN_VAD
    features = [shape for shape in shapes if len(shape) == 3 and shape[2] == _FSMN_STATES]
    return FSMN if features and shapes.count(_FSMN_CACHE) == len(shapes) - 1 else ""


def _shapes(graph: Graph, names: tuple[str, ...]) -> list[Shape]:
    return [graph.tensors[name].shape for name in names]
