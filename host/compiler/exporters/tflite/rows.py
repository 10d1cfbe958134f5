"""One row per operator of the graph that TensorFlow Lite can hold."""

from __future__ import annotations

from edgekit.host.compiler.exporters.tflite import conv as tflite_conv
from edgekit.host.compiler.exporters.tflite import math as tflite_math
from edgekit.host.compiler.exporters.tflite import moves as tflite_moves
from edgekit.host.compiler.exporters.tflite.sink import Call, Rows
from edgekit.host.compiler.ir import ops

ROWS: Rows = {**tflite_conv.ROWS, **tflite_math.ROWS, **tflite_moves.ROWS}

_FLOATS_ONLY = (
    ops.Clip, ops.Div, ops.HardSigmoid, ops.Reciprocal, ops.Silu, ops.Softplus,
)  # fmt: skip


def of_floats_only(call: Call) -> bool:
    """Whether the node computes on codes, for which LiteRT has no such operator."""
    op = call.node.op
    scaled = isinstance(op, ops.Elu) and op != ops.Elu()
    return (scaled or isinstance(op, _FLOATS_ONLY)) and call.operand(0).is_coded
