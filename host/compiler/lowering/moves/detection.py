"""Lowers box detection operators."""

from __future__ import annotations

import numpy as np

from edgekit.device.runtime.kernel_facts import CANDIDATE_BYTES, POSE_BYTES, ROOT_BYTES
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Node
from edgekit.host.compiler.lowering.common.arguments import operand_of
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value


@lowers(ops.DetectionOutput)
def lower_detection_output(ctx: Context, node: Node) -> list[KernelCall]:
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
        "single": int(op.single),
        "across": int(op.across),
        "top_k": op.top_k,
        "keep": op.keep,
        "entries": entries,
        "threshold": op.threshold,
        "overlap": op.overlap,
        "boxes": Value(boxes.name),
        "scores": Value(scores.name),
        "y": Value(node.outputs[0]),
        "candidates": ctx.scratch(node, images * entries * CANDIDATE_BYTES),
    }
    kernel = ctx.kernel("f32_detections", "detection/output.c", None, "ek_detection_args")
    return [KernelCall(kernel, fields, images)]


@lowers(ops.AreaBoxes)
def lower_area_boxes(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.AreaBoxes)
    x = ctx.tensor(node.inputs[0])
    _, h, w = x.shape
    fields: dict[str, Field] = {
        "h": h,
        "w": w,
        "keep": op.keep,
        "least": op.least,
        "threshold": op.threshold,
        "sure": op.sure,
        "grow": op.grow,
        "x": operand_of(ctx, x),
        "y": Value(node.outputs[0]),
        "waiting": ctx.scratch(node, 4 * h * w),
        "seen": ctx.scratch(node, h * w),
        "rows": ctx.scratch(node, 8 * h),
        "hull": ctx.scratch(node, 16 * (h + 1)),
    }
    kernel = ctx.kernel("f32_area_boxes", "detection/areas.c", None, "ek_area_boxes_args")
    return [KernelCall(kernel, fields, 1)]


@lowers(ops.InstanceMasks)
def lower_instance_masks(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.InstanceMasks)
    rows, maps = (ctx.tensor(name) for name in node.inputs)
    count, h, w = maps.shape
    fields: dict[str, Field] = {
        "maps": count,
        "h": h,
        "w": w,
        "across": op.across,
        "down": op.down,
        "steps": op.steps,
        "least": op.least,
        "rows": operand_of(ctx, rows),
        "x": operand_of(ctx, maps),
        "y": Value(node.outputs[0]),
    }
    kernel = ctx.kernel("f32_masks", "detection/masks.c", None, "ek_masks_args")
    return [KernelCall(kernel, fields, rows.shape[2])]


@lowers(ops.SelectRotated)
def lower_select_rotated(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.SelectRotated)
    boxes, scores = (ctx.tensor(name) for name in node.inputs)
    fields: dict[str, Field] = {
        "n": boxes.shape[0],
        "limit": op.limit,
        "most": op.most,
        "least": op.least,
        "boxes": operand_of(ctx, boxes),
        "scores": operand_of(ctx, scores),
        "y": Value(node.outputs[0]),
    }
    kernel = ctx.kernel("select_rotated", "detection/rotated.c", None, "ek_rotated_args")
    return [KernelCall(kernel, fields, 1)]


@lowers(ops.DecodePoses)
def lower_decode_poses(ctx: Context, node: Node) -> list[KernelCall]:
    op = node.op
    assert isinstance(op, ops.DecodePoses)
    heat, short, mid = (ctx.tensor(name) for name in node.inputs)
    _, h, w, _ = heat.shape
    fields: dict[str, Field] = {
        "h": h,
        "w": w,
        "keep": op.keep,
        "least": op.least,
        "logit": op.logit,
        "near": float(np.float32(op.radius) * np.float32(op.radius)),
        "cell": 1 / op.stride,
        "stride": float(op.stride),
        "heat": operand_of(ctx, heat),
        "near_offsets": operand_of(ctx, short),
        "edge_offsets": operand_of(ctx, mid),
        "y": Value(node.outputs[0]),
        "scores": Value(node.outputs[1]),
        "means": Value(node.outputs[2]),
        "count": Value(node.outputs[3]),
        "roots": ctx.scratch(node, heat.elements * ROOT_BYTES),
        "poses": ctx.scratch(node, op.keep * POSE_BYTES),
    }
    kernel = ctx.kernel("f32_poses", "detection/poses.c", None, "ek_poses_args")
    return [KernelCall(kernel, fields, 1)]
