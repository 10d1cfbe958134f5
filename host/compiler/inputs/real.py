"""Converts between real values and a tensor's dtype (identity for floats)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.dtypes import BY_NAME


def as_input(values: NDArray[np.float64], spec: TensorSpec) -> NDArray[Any]:
    """Convert `values` to the dtype of the input; quantized values saturate."""
    wanted = np.dtype(BY_NAME[spec.dtype].npy)
    if wanted.kind == "f":
        return values.astype(wanted)
    quantized = values if spec.scale is None else values / spec.scale + (spec.zero_point or 0)
    limits = np.iinfo(wanted)
    return np.clip(np.rint(quantized), limits.min, limits.max).astype(wanted)


def as_real(quantized: NDArray[Any], spec: TensorSpec) -> NDArray[np.float64]:
    """Dequantize the values of an output."""
    values = quantized.astype(np.float64)
    return values if spec.scale is None else (values - (spec.zero_point or 0)) * spec.scale
