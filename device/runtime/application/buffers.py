"""Exposes an application's arrays as memory that a model reads or writes in place.

Accepts any object with the buffer protocol (NumPy arrays, array.array, bytes, memoryview), and
copies it only if a model could not read it: strided, misaligned, or of the other byte order.
"""

from __future__ import annotations

import sys
from typing import Any, Mapping, Tuple

from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.arrays import buffers
from edgekit.device.runtime.arrays.buffers import FORMATS, Place, dtype_of, locate, place_of_bytes
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.runtime.errors import InputError


def view_of(name: str, value: Any) -> memoryview:
    """Returns a typed, shaped view of `value`; InputError if it has no buffer."""
    if isinstance(value, Array):
        shown = memoryview(value.data)
        return shown.cast(FORMATS[value.dtype], value.shape) if value.dtype != "f16" else shown
    return buffers.view_of(value, f"'{name}'")


def readable(spec: TensorSpec, value: Any, view: memoryview) -> Place:
    """Returns the place from which a model may read `value`; InputError if it does not fit
    `spec`."""
    if view.format[:1] in (">", "!") and hasattr(value, "__array_interface__"):
        value = Array.of(value)
        view = view_of(spec.name, value)
    _check_tensor(spec, value, view, "input")
    if not view.c_contiguous:
        return place_of_bytes(view.tobytes())
    place = locate(value, view)
    if place is None or place[0] % BY_NAME[spec.dtype].bytes:
        return place_of_bytes(view.tobytes())
    return place


def writable(spec: TensorSpec, value: Any) -> Place:
    """Returns the place a model may write to; InputError if `value` does not fit `spec` or is
    read-only."""
    _check_tensor(spec, value, view_of(spec.name, value), "output")
    found = buffers.writable(value, f"output '{spec.name}'", BY_NAME[spec.dtype].bytes)
    return found.address, found.owner


def fresh(spec: TensorSpec, numpy: Any) -> Tuple[Any, Place]:
    """Returns a new array and its place: a NumPy array if `numpy` is given, else a memoryview."""
    if numpy is None:
        view, memory = buffers.fresh(spec.dtype, spec.shape, f"output '{spec.name}'")
        return view, (memory.address, memory.owner)
    array = numpy.empty(spec.shape, numpy.dtype(BY_NAME[spec.dtype].npy))
    return array, (array.__array_interface__["data"][0], array)


def numpy_of(inputs: Mapping[str, Any]) -> Any:
    """Returns NumPy if any input is a NumPy array, so that other applications never import it."""
    return sys.modules["numpy"] if buffers.has_numpy(*inputs.values()) else None


def _check_tensor(spec: TensorSpec, value: Any, view: memoryview, what: str) -> None:
    """Checks dtype and shape; without NumPy also accepts a flat array of all elements, or bytes."""
    dtype = dtype_of(view)
    if (dtype, view.shape) == (spec.dtype, spec.shape):
        return
    if view.ndim == 1 and view.nbytes == spec.bytes and not hasattr(value, "__array_interface__"):
        raw = view.format in ("B", "b", "c") or (spec.dtype == "f16" and view.format == "H")
        if raw or dtype == spec.dtype:
            return
    raise InputError(
        f"{what} '{spec.name}': expected {spec.dtype} {list(spec.shape)}, "
        f"found {dtype} {list(view.shape or ())}"
    )
