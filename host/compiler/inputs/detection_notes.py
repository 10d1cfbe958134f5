"""Reads what .tflite files say of the boxes they find: the options of the operator that selects
them, or MediaPipe's anchors and how boxes are relative to them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flatbuffers import encode, flexbuffers, number_types
from flatbuffers.table import Table

from edgekit.host.compiler.inputs.metadata import (
    DAMAGED,
    field_offset,
    get_scalar,
    get_table,
    model_format,
    read_custom,
)
from edgekit.host.compiler.ir.types import Array

_OPERATOR = b"TFLite_Detection_PostProcess"
_MEDIAPIPE = "DETECTOR_METADATA"
_MOST_ANCHORS = 1 << 20


@dataclass(frozen=True, eq=False)
class Anchors:
    """MediaPipe's: centers and sizes `boxes` [n, 4], x first, relative to the picture; `scales` of
    x, y, width and height, which boxes are divided by; `grows`: sizes are powers of e; `logits`:
    scores need a sigmoid."""

    boxes: Array
    scales: tuple[float, ...]
    grows: bool
    logits: bool


@dataclass(frozen=True)
class DetectionNotes:
    """Either `results` of TFLite_Detection_PostProcess (boxes, classes, scores, count) and its
    number of `classes`, or `anchors`; empty if the file has none."""

    results: tuple[str, ...] = ()
    classes: int = 0
    anchors: Anchors | None = None


def read_detection_notes(path: Path) -> DetectionNotes:
    """Those of a .tflite file; empty for others, and where they cannot be read."""
    if model_format(path) != "tflite":
        return DetectionNotes()
    try:
        data = path.read_bytes()
        found = _postprocessed(data) if _OPERATOR in data else None
        return found or DetectionNotes(anchors=_anchors(read_custom(path, _MEDIAPIPE)))
    except DAMAGED:
        return DetectionNotes()


def _postprocessed(data: bytes) -> DetectionNotes | None:
    import tflite  # slow, and most commands read no metadata

    model = tflite.Model.GetRootAs(data)
    graph = model.Subgraphs(0)
    for i in range(graph.OperatorsLength()):
        node = graph.Operators(i)
        if model.OperatorCodes(node.OpcodeIndex()).CustomCode() == _OPERATOR:
            ends = (node.Outputs(k) for k in range(node.OutputsLength()))
            names = tuple(graph.Tensors(end).Name().decode() for end in ends)
            options: Any = flexbuffers.Loads(node.CustomOptionsAsNumpy().tobytes())
            return DetectionNotes(names, int(options["num_classes"]))
    return None


def _anchors(data: bytes | None) -> Anchors | None:
    if not data:
        return None
    root = Table(data, encode.Get(number_types.UOffsetTFlags.packer_type, data, 0))
    given, decoding = get_table(root, 1), get_table(root, 2)
    schema = get_table(given, 0) if given else None
    if schema is None or decoding is None or not (at := field_offset(schema, 0)):
        return None
    start, count = schema.Vector(at - schema.Pos), schema.VectorLen(at - schema.Pos)
    if not 0 < count <= _MOST_ANCHORS:
        return None
    each = (Table(data, schema.Indirect(start + 4 * i)) for i in range(count))
    boxes = [[_number(box, k) for k in range(4)] for box in each]
    scales = tuple(_number(decoding, k) for k in range(6, 10))
    made = np.array(boxes, np.float32)
    if not (np.isfinite(made).all() and np.isfinite(scales).all() and min(scales) > 0):
        return None
    grows, logits = (bool(get_scalar(decoding, k, number_types.BoolFlags)) for k in (10, 11))
    return Anchors(made, scales, grows, logits)


def _number(table: Table, field: int) -> float:
    at = field_offset(table, field)
    return float(table.Get(number_types.Float32Flags, at)) if at else 0.0
