"""Lowering of what makes detections of boxes."""

from __future__ import annotations

from edgekit.host.graph import ops
from edgekit.host.graph.types import Node
from edgekit.host.lower.context import Context
from edgekit.host.lower.plan import Call, Field, Value

_CANDIDATE_BYTES = 12  # ek_candidate


def lower_detection_output(ctx: Context, node: Node) -> list[Call]:
    op = node.op
    assert isinstance(op, ops.DetectionOutput)
    boxes, scores = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    images, classes, n = scores.shape
    entries = op.entries(classes, n)
    fields: dict[str, Field] = {
        "n": n,
        "classes": classes,
        "locations": boxes.shape[2],
        "background": op.background,
        "top_k": op.top_k,
        "keep": op.keep,
        "entries": entries,
        "threshold": op.threshold,
        "overlap": op.overlap,
        "boxes": Value(boxes.name),
        "scores": Value(scores.name),
        "y": Value(node.outputs[0]),
        "candidates": ctx.scratch(node, images * entries * _CANDIDATE_BYTES),
    }
    kernel = ctx.kernel(
        "f32_detections", "detection/output.c", "detection/output.h", "ek_detection_args"
    )
    return [Call(kernel, fields, images)]
