"""Operators of old opsets in their newer form: attributes that became operands are constants.

Handlers and the tracking of data-dependent sizes see one form, whatever the file's opset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgekit.host.compiler.ir.types import Array, ShapeError

# The opset in which attributes became operands, and the operand that each became.
MOVED: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "Clip": (11, {"min": 1, "max": 2}),
    "DFT": (20, {"axis": 2}),
    "Dropout": (12, {"ratio": 1}),
    "Pad": (11, {"paddings": 1, "pads": 1, "value": 2}),
    "Reshape": (5, {"shape": 1}),
    "Slice": (10, {"starts": 1, "ends": 2, "axes": 3}),
    "Split": (13, {"split": 1}),
    "Squeeze": (13, {"axes": 1}),
    "TopK": (10, {"k": 1}),
    "Unsqueeze": (13, {"axes": 1}),
    "Upsample": (9, {"scales": 1}),
    "ReduceSum": (13, {"axes": 1}),
    **dict.fromkeys(
        (
            "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
            "ReduceMin", "ReduceProd", "ReduceSumSquare",
        ),
        (18, {"axes": 1}),
    ),
}  # fmt: skip


def moved_operands(op: str, opset: int, attributes: Mapping[str, Any]) -> dict[int, Array]:
    """The constants that attributes of `op` represent, by the index of the operand."""
    since, places = MOVED.get(op, (0, {}))
    if opset >= since:
        return {}
    return {
        place: _numbers(name, attributes[name])
        for name, place in places.items()
        if attributes.get(name) is not None
    }


def _numbers(name: str, value: Any) -> Array:
    flat = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(v, int | float) for v in flat):
        raise ShapeError(f"expected numbers as attribute {name}, found {value!r:.40}")
    return np.array(value, np.float32 if any(isinstance(v, float) for v in flat) else np.int64)
