"""Converts arrays between dtypes if that preserves values, except for rounding of floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.dtypes import BY_NAME, BY_NPY
from edgekit.host.errors import InputError

Arrays = Mapping[str, NDArray[Any]]


class _UnsafeError(Exception):
    """The conversion would change values; the message says how."""


def fitted(inputs: Arrays, specs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """Convert the arrays to the dtypes of `specs`.

    Raises InputError if names or shapes differ, or if a value would change other than by rounding
    of floats.
    """
    if set(inputs) != {spec.name for spec in specs}:
        raise InputError(
            f"expected inputs {_join_names([s.name for s in specs])}, "
            f"found {_join_names(sorted(inputs))}; name the arrays as in the model"
        )
    return {spec.name: _fit_to_spec(np.asarray(inputs[spec.name]), spec) for spec in specs}


def _fit_to_spec(array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    wanted = np.dtype(BY_NAME[spec.dtype].npy)
    expected = f"input '{spec.name}': expected {spec.dtype} {list(spec.shape)}"
    found = f"found {type_name(array.dtype)} {list(array.shape)}"
    if array.shape != spec.shape:
        raise InputError(f"{expected}, {found}")
    if array.dtype == wanted:
        return array
    try:
        return _convert_exactly(array, wanted, spec)
    except _UnsafeError as error:
        raise InputError(f"{expected}, {found}: {error}") from None


def _convert_exactly(array: NDArray[Any], wanted: np.dtype[Any], spec: TensorSpec) -> NDArray[Any]:
    if array.dtype.kind not in "biuf":
        raise _UnsafeError("not numbers; convert them with .astype(...)")
    if array.dtype.kind == "f" and spec.scale is not None:
        raise _UnsafeError(
            "the input is quantized; quantize real values with "
            f"round(x / {spec.scale:.9g} + {spec.zero_point or 0}), or give {spec.dtype}"
        )
    if wanted.kind == "f":
        return _as_float(array, wanted)
    low, high = (0, 1) if wanted.kind == "b" else (np.iinfo(wanted).min, np.iinfo(wanted).max)
    if array.size:
        least, most = array.min(), array.max()
        if not (least >= low and most <= high):  # negated so that NaN is rejected too
            raise _UnsafeError(
                f"values from {least:.9g} to {most:.9g} do not fit into {low} to {high}"
            )
        if array.dtype.kind == "f" and (array != np.floor(array)).any():
            raise _UnsafeError("values with fractions; round them first")
    return array.astype(wanted)


def _as_float(array: NDArray[Any], wanted: np.dtype[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        made = array.astype(wanted)
    if array.dtype.kind == "f":
        if (np.isinf(made) & ~np.isinf(array)).any():
            raise _UnsafeError(f"values beyond {np.finfo(wanted).max:.4g}; scale them first")
    elif not np.array_equal(made, array) or not np.isfinite(made).all():
        raise _UnsafeError("integers that floats of that size cannot represent; scale them first")
    return made


def type_name(dtype: np.dtype[Any]) -> str:
    """Return edgekit's name for a NumPy dtype: f64 for float64."""
    known = BY_NPY.get(dtype.newbyteorder("<").str)
    return known.name if known else str(dtype)


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"
