"""Weights of -1, 0 and 1 as BitNet's folders pack them: a byte holds values of four rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.gguf.blocks import floats_of
from edgekit.host.compiler.frontends.gguf.safetensors import Stored
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.sidecars import CONFIG
from edgekit.host.errors import InputError

METHOD, SCALE = "bitnet", ".weight_scale"
BLOCK, BLOCK_BYTES = 256, 66  # of TQ2_0
_BF16 = 30


def check_ternary(about: Mapping[str, Any]) -> None:
    """InputError for a `quantization_config` whose network computes more than it says."""
    online, norm = about.get("quantization_mode") == "online", about.get("use_rms_norm")
    if online or norm:
        raise InputError(
            f"{CONFIG}: quantization_config: expected packed weights without a norm of their own, "
            f"found {'quantization_mode online' if online else 'use_rms_norm'}; choose a GGUF file "
            "of the model"
        )


def factor_of(scale: Stored, about: Mapping[str, Any]) -> float:
    """What the values are multiplied by. Layers of the class "bitlinear", the usual one, divide by
    the stored scale."""
    kind = {"F32": 0, "F16": 1}.get(scale.dtype, _BF16)
    found = float(floats_of(scale.data(), (1,), kind)[0]) if scale.shape == (1,) else 0.0
    if not 0 < abs(found) < float("inf"):
        raise InputError(f"{scale.file.name}: expected a scale of a layer, found {found:g}")
    return found if about.get("linear_class") == "autobitlinear" else 1 / found


def unpacked(packed: Array, rows: int, order: Array | None) -> Array:
    """Values s8 [4 · rows, k] of packed bytes: those of the first quarter are the lowest bits."""
    codes = packed.reshape(rows, -1)[None] >> np.arange(0, 8, 2, dtype=np.uint8)[:, None, None] & 3
    values = codes.astype(np.int8).reshape(4 * rows, -1) - np.int8(1)
    return values if order is None else values[order]


def as_blocks(values: Array, factor: float) -> Array:
    """TQ2_0: each byte has values that are 32 apart, then follows the factor in f16."""
    parts = (values + 1).astype(np.uint8).reshape(-1, 2, 4, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    made = np.empty((len(parts), BLOCK_BYTES), np.uint8)
    made[:, :-2] = np.bitwise_or.reduce(parts << shifts, axis=2).reshape(-1, 64)
    made[:, -2:] = np.array([factor], "<f2").view(np.uint8)
    return made.reshape(-1)
