"""Memory of objects with the buffer protocol: array.array, bytes, memoryview, mmap.

What is strided, misaligned or read-only without a known address is copied.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import sys
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple

from edgekit.device.runtime.dtypes import BY_NAME, count
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.features import memory_bytes

# What memoryview.cast takes, which has no half-precision format.
FORMATS: Dict[str, Any] = {**{t.name: t.code for t in BY_NAME.values()}, "f16": "H", "bool": "?"}
_NAMES = {"f": "f", "d": "f", "e": "f", "?": "bool", **dict.fromkeys("bhilq", "s")}
_KINDS: Dict[str, str] = {**_NAMES, **dict.fromkeys("BHILQ", "u")}

_USUALLY_FREE = 1 << 26  # bytes: smaller arrays are allocated without reading what is free

# An address, and the object that must stay alive while it is used.
Place = Tuple[int, Any]


class Buffer(NamedTuple):
    """An array in C order: element type, shape, address, and the object that owns the memory."""

    dtype: str
    shape: Tuple[int, ...]
    address: int
    owner: Any


def has_numpy(*values: Any) -> bool:
    """Whether one of the values is a NumPy array; imports nothing."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        for value in values:  # the first is one in most calls
            if isinstance(value, numpy.ndarray):
                return True
    return False


def refuse_masked(value: Any, what: str) -> None:
    """InputError, beginning with `what`, for an array with a mask: masked elements would count."""
    masked = sys.modules.get("numpy.ma")  # without it nothing is masked
    if masked is not None and isinstance(value, masked.MaskedArray):
        raise InputError(
            f"{what}: expected an array without a mask, found a masked one; give its .filled(0)"
        )


def as_array(np: Any, value: Any, what: str) -> Any:
    """Returns a NumPy array of an array or of nested lists; InputError, beginning with `what`, for
    what cannot be one, and for a mask."""
    refuse_masked(value, what)
    try:
        return np.asarray(value)
    except (TypeError, ValueError):
        raise InputError(
            f"{what}: expected an array of numbers, found {type(value).__name__}"
        ) from None


def empty_array(np: Any, shape: Any, dtype: Any, what: str) -> Any:
    """Returns a new NumPy array; InputError, beginning with `what`, if memory is too small."""
    try:
        array = np.empty(shape, dtype)
    except (MemoryError, ValueError):
        raise _too_little(what, "a result", shape) from None
    require_memory(array.nbytes, what, "a result", shape)
    return array


def dense_array(np: Any, array: Any, what: str) -> Any:
    """Returns an aligned NumPy array in C order, copied if necessary; InputError likewise."""
    if not (array.flags.c_contiguous and array.flags.aligned):
        require_memory(array.nbytes, what, "a copy", array.shape)
    with enough_memory(what, "a copy", array.shape):
        dense = np.ascontiguousarray(array)
        return dense if dense.flags.aligned else dense.copy()


@contextlib.contextmanager
def enough_memory(what: str, of: str, shape: Any) -> Iterator[None]:
    """Raises InputError, beginning with `what`, instead of MemoryError."""
    try:
        yield
    except MemoryError:
        raise _too_little(what, of, shape) from None


def require_memory(need: int, what: str, of: str, shape: Any) -> None:
    """InputError, beginning with `what`, unless `need` bytes are free: Linux grants more, and then
    kills the process that uses them."""
    if need > _USUALLY_FREE:
        free = memory_bytes().available
        if free is not None and need > free:
            raise _too_little(what, of, shape)


def _too_little(what: str, of: str, shape: Any) -> InputError:
    return InputError(
        f"{what}: expected memory for {of} of {list(shape)}, found too little; free some or "
        "compute in parts"
    )


def view_of(value: Any, what: str) -> memoryview:
    """Returns a view of `value`; InputError, beginning with `what`, if it has no buffer."""
    refuse_masked(value, what)
    try:
        return memoryview(value)
    except TypeError:
        raise InputError(
            f"{what}: expected an array, found {type(value).__name__}; give a NumPy array, "
            "an array.array or bytes"
        ) from None
    except ValueError as error:  # of NumPy, for types that no buffer has, such as dates
        found = "a released memoryview" if isinstance(value, memoryview) else str(error)
        raise InputError(f"{what}: expected an array of numbers, found {found}") from None


def readable(value: Any, what: str) -> Buffer:
    """Returns the memory of an array to read; copies it if necessary. A Buffer is returned as it
    is: without NumPy, no view can be given the format of f16."""
    if isinstance(value, Buffer):
        return value
    view = view_of(value, what)
    dtype = dtype_of(view)
    place = locate(value, view) if view.c_contiguous else None
    if place is None or place[0] % view.itemsize:
        require_memory(view.nbytes, what, "a copy", view.shape)
        with enough_memory(what, "a copy", view.shape):
            place = place_of_bytes(view.tobytes())
    return Buffer(dtype, tuple(view.shape or ()), *place)


def writable(value: Any, what: str, alignment: int) -> Buffer:
    """Returns the memory of an array to write; InputError if it is read-only, misaligned or has
    gaps."""
    view = view_of(value, what)
    found = "a read-only one" if view.readonly else "one with gaps" if not view.c_contiguous else ""
    place = None if found else locate(value, view)
    if place is None or place[0] % alignment:
        raise InputError(
            f"{what}: expected a writable, contiguous and aligned array, found "
            f"{found or 'a misaligned one'}"
        )
    return Buffer(dtype_of(view), tuple(view.shape or ()), *place)


def shape_hint(found: Buffer) -> str:
    """Says how an array becomes a matrix without NumPy; empty for a matrix."""
    if len(found.shape) == 2:
        return ""
    code = FORMATS.get(found.dtype, "f")
    return f"; make it memoryview(x).cast('B').cast('{code}', [rows, columns])"


def checked(found: Buffer, dtype: str, shape: Tuple[int, ...], what: str) -> Buffer:
    """Returns `found`; InputError if it is of another type or shape."""
    if (found.dtype, found.shape) != (dtype, shape):
        raise InputError(
            f"{what}: expected {dtype} {list(shape)}, found {found.dtype} {list(found.shape)}"
        )
    return found


def fresh(dtype: str, shape: Tuple[int, ...], what: str) -> Tuple[memoryview, Buffer]:
    """Returns a view of new memory, and the memory; InputError, beginning with `what`, if memory is
    too small. A view of no elements has one dimension."""
    need = BY_NAME[dtype].bytes * count(shape)
    require_memory(need, what, "a result", shape)
    try:
        block = bytearray(need)
    except (MemoryError, OverflowError):
        raise _too_little(what, "a result", shape) from None
    view = memoryview(block).cast(FORMATS[dtype])
    if not block:
        return view, Buffer(dtype, shape, 0, block)
    held = ctypes.c_char.from_buffer(block)
    return view.cast("B").cast(FORMATS[dtype], list(shape)), Buffer(
        dtype, shape, ctypes.addressof(held), held
    )


def overlap(a: Buffer, b: Buffer) -> bool:
    """Whether two arrays share memory."""
    a_end, b_end = (x.address + BY_NAME[x.dtype].bytes * count(x.shape) for x in (a, b))
    return a.address < b_end and b.address < a_end


def element(of: Buffer, i: int) -> Any:
    """Returns the i-th element of an array."""
    kind = BY_NAME[of.dtype]
    return struct.unpack(kind.code, ctypes.string_at(of.address + i * kind.bytes, kind.bytes))[0]


def locate(value: Any, view: memoryview) -> Optional[Place]:
    """Returns the place of an array; None if Python does not expose its address."""
    interface = getattr(value, "__array_interface__", None)
    if interface is not None:
        return interface["data"][0], value
    if isinstance(value, bytes):
        return place_of_bytes(value)
    if view.readonly or not view.nbytes:
        return None
    held = ctypes.c_char.from_buffer(view)
    return ctypes.addressof(held), held


def place_of_bytes(data: bytes) -> Place:
    """Returns the place of bytes."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0, data


def dtype_of(view: memoryview) -> str:
    """Returns the element type's name, or the buffer's format letter if it has none."""
    kind = _KINDS.get(view.format[-1], "")
    name = kind if kind == "bool" else f"{kind}{8 * view.itemsize}"
    plain = len(view.format) == 1 or view.format[0] in "<=@"
    return name if plain and name in BY_NAME else f"elements of '{view.format}'"
