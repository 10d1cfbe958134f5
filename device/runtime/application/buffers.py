"""Exposes an application's arrays as memory that a model reads or writes in place.

Accepts any object with the buffer protocol (NumPy arrays, array.array, bytes, memoryview), and
copies it only if a model could not read it: strided, misaligned, or of the other byte order.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Dict, Mapping, Optional, Tuple

from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.runtime.errors import InputError

_NAMES = {"f": "f", "d": "f", "e": "f", "?": "bool", **dict.fromkeys("bhilq", "s")}
_KINDS: Dict[str, str] = {**_NAMES, **dict.fromkeys("BHILQ", "u")}
_FORMATS: Dict[str, Any] = {
    "f16": "H",  # memoryview has no half-precision format
    "f32": "f",
    "f64": "d",
    "s8": "b",
    "s16": "h",
    "s32": "i",
    "s64": "q",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "bool": "?",
}

# An address, and the object that must stay alive while it is used.
Place = Tuple[int, Any]


def view_of(name: str, value: Any) -> memoryview:
    """Returns a typed, shaped view of `value`; InputError if it has no buffer."""
    if isinstance(value, Array):
        shown = memoryview(value.data)
        return shown.cast(_FORMATS[value.dtype], value.shape) if value.dtype != "f16" else shown
    try:
        return memoryview(value)
    except TypeError:
        raise InputError(
            f"'{name}': expected an array, found {type(value).__name__}; give a NumPy array, "
            "an array.array or bytes"
        ) from None


def readable(spec: TensorSpec, value: Any, view: memoryview) -> Place:
    """Returns the place from which a model may read `value`; InputError if it does not fit
    `spec`."""
    if view.format[:1] in (">", "!") and hasattr(value, "__array_interface__"):
        value = Array.of(value)
        view = view_of(spec.name, value)
    _check_tensor(spec, value, view, "input")
    if not view.c_contiguous:
        return _bytes_place(view.tobytes())
    place = _locate_memory(value, view)
    if place is None or place[0] % BY_NAME[spec.dtype].bytes:
        return _bytes_place(view.tobytes())
    return place


def writable(spec: TensorSpec, value: Any) -> Place:
    """Returns the place a model may write to; InputError if `value` does not fit `spec` or is
    read-only."""
    view = view_of(spec.name, value)
    _check_tensor(spec, value, view, "output")
    found = "a read-only one" if view.readonly else "one with gaps" if not view.c_contiguous else ""
    place = None if found else _locate_memory(value, view)
    if place is None or place[0] % BY_NAME[spec.dtype].bytes:
        raise InputError(
            f"output '{spec.name}': expected a writable, contiguous and aligned array, found "
            f"{found or 'a misaligned one'}"
        )
    return place


def fresh(spec: TensorSpec, numpy: Any) -> Tuple[Any, Place]:
    """Returns a new array and its place: a NumPy array if `numpy` is given, else a memoryview."""
    if numpy is not None:
        array = numpy.empty(spec.shape, numpy.dtype(BY_NAME[spec.dtype].npy))
        return array, (array.__array_interface__["data"][0], array)
    block = bytearray(spec.bytes)
    held = ctypes.c_char.from_buffer(block)
    view = memoryview(block)
    return view.cast(_FORMATS[spec.dtype], list(spec.shape)), (ctypes.addressof(held), held)


def numpy_of(inputs: Mapping[str, Any]) -> Any:
    """Returns NumPy if any input is a NumPy array, so that other applications never import it."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and any(isinstance(v, numpy.ndarray) for v in inputs.values()):
        return numpy
    return None


def _locate_memory(value: Any, view: memoryview) -> Optional[Place]:
    """Returns None if Python does not expose the memory's address."""
    interface = getattr(value, "__array_interface__", None)
    if interface is not None:
        return interface["data"][0], value
    if isinstance(value, bytes):
        return _bytes_place(value)
    if view.readonly:
        return None
    held = ctypes.c_char.from_buffer(view)
    return ctypes.addressof(held), held


def _bytes_place(data: bytes) -> Place:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0, data


def _check_tensor(spec: TensorSpec, value: Any, view: memoryview, what: str) -> None:
    """Checks dtype and shape; without NumPy also accepts a flat array of all elements, or bytes."""
    dtype = _dtype_of(view)
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


def _dtype_of(view: memoryview) -> str:
    """Returns the element type's name, or the buffer's format letter if it has none."""
    kind = _KINDS.get(view.format[-1], "")
    name = kind if kind == "bool" else f"{kind}{8 * view.itemsize}"
    plain = len(view.format) == 1 or view.format[0] in "<=@"
    return name if plain and name in BY_NAME else f"elements of '{view.format}'"
