"""Real values as an input takes them: floats as they are, codes by scale and zero point."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.dtypes import BY_NAME


def as_input(values: NDArray[np.float64], spec: TensorSpec) -> NDArray[Any]:
    """`values` in the type of the input; what a code cannot reach becomes the nearest one."""
    wanted = np.dtype(BY_NAME[spec.dtype].npy)
    if wanted.kind == "f":
        return values.astype(wanted)
    codes = values if spec.scale is None else values / spec.scale + (spec.zero_point or 0)
    limits = np.iinfo(wanted)
    return np.clip(np.rint(codes), limits.min, limits.max).astype(wanted)


def as_real(codes: NDArray[Any], spec: TensorSpec) -> NDArray[np.float64]:
    """The values that an output's codes stand for."""
    values = codes.astype(np.float64)
    return values if spec.scale is None else (values - (spec.zero_point or 0)) * spec.scale
