"""Reads and writes .npz archives of plain arrays without NumPy."""

from __future__ import annotations

import io
import re
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, List, Mapping, Tuple

from edgekit.device.runtime.dtypes import BY_NAME, BY_NPY, count
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.record import Record

if TYPE_CHECKING:
    import zipfile

_MAGIC = b"\x93NUMPY"
_HEADER = re.compile(
    r"\{\s*'descr':\s*'([<>|=][a-zA-Z]\d+)',\s*'fortran_order':\s*(True|False),"
    r"\s*'shape':\s*\(([\d, ]*)\),?\s*\}\s*"
)
_DAMAGED = (
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    struct.error,
    zlib.error,
)
_MAX_RANK = 32
_MAX_BYTES = 1 << 31


class Array(Record):
    """A contiguous array in C order; `data` is little-endian, `dtype` a name such as "f32"."""

    dtype: str
    shape: Tuple[int, ...]
    data: bytes

    @staticmethod
    def of(value: Any) -> Array:
        """Returns `value` itself if it is an Array, or a copy of a NumPy array; else InputError."""
        if isinstance(value, Array):
            return value
        interface = getattr(value, "__array_interface__", None)
        if interface is None:
            raise InputError(f"expected an array, found {type(value).__name__}")
        code = interface["typestr"]
        return Array(
            _element_type(code), tuple(interface["shape"]), _little_endian(value.tobytes(), code)
        )


def read_npz(path: Path) -> Dict[str, Array]:
    """Reads the arrays of an archive by name; InputError if it is damaged or not numeric."""
    try:
        with path.open("rb") as file:
            return parse_npz(file, str(path))
    except OSError as error:
        raise InputError(f"{path}: expected an .npz file, found {error.strerror}") from None


def parse_npz(file: BinaryIO, name: str) -> Dict[str, Array]:
    """Reads the arrays of an open .npz file (see read_npz); `name` is for messages."""
    import zipfile  # programs with arrays do not always need archives

    try:
        with zipfile.ZipFile(file) as archive:
            return {_member_name(i): _read_member(archive, i) for i in archive.infolist()}
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except (zipfile.BadZipFile, *_DAMAGED) as error:
        raise InputError(f"{name}: expected an .npz archive, found {error}") from None


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Returns an uncompressed archive for numpy.load, reproducible for the same arrays."""
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(name + ".npy"), npy_bytes(array))
    return file.getvalue()


def read_npy(data: bytes) -> Array:
    """Parses one .npy file; converts the array to little-endian and C order."""
    if data[:6] != _MAGIC or len(data) < 10:
        raise InputError(f"expected an .npy array, found bytes {data[:6]!r}")
    wide = data[6] > 1
    start = 12 if wide else 10
    (length,) = struct.unpack_from("<I" if wide else "<H", data, 8)
    match = _HEADER.fullmatch(data[start : start + length].decode("latin-1"))
    if match is None:
        raise InputError(
            "expected an array of numbers, found a header "
            + repr(data[start : start + min(length, 60)])
        )
    code, fortran, dims = match.groups()
    shape = tuple(int(d) for d in dims.replace(" ", "").split(",") if d)
    name = _element_type(code)
    body = data[start + length :]
    expected = BY_NAME[name].bytes * count(shape)
    if len(shape) > _MAX_RANK or len(body) != expected:
        raise InputError(f"expected {expected} bytes for shape {shape}, found {len(body)}")
    body = _little_endian(body, code)
    if fortran == "True":
        body = _from_fortran(body, shape, BY_NAME[name].bytes)
    return Array(name, shape, body)


def npy_bytes(array: Array) -> bytes:
    """Serializes `array` as a .npy file, version 1.0, its data aligned to 64 bytes."""
    dims = "".join(f"{d}, " for d in array.shape)
    text = (
        f"{{'descr': '{BY_NAME[array.dtype].npy}', 'fortran_order': False, "
        f"'shape': ({dims.rstrip() if len(array.shape) == 1 else dims.rstrip(', ')}), }}"
    )
    padded = text + " " * (-(len(text) + 11) % 64) + "\n"
    return _MAGIC + b"\x01\x00" + struct.pack("<H", len(padded)) + padded.encode() + array.data


def _element_type(code: str) -> str:
    """Returns the dtype name of a .npy type code of either byte order."""
    plain = code.replace(">", "<").replace("=", "<")
    known = BY_NPY.get(plain) or BY_NPY.get("|" + plain[1:])
    if known is None:
        raise InputError(f"expected one of {', '.join(BY_NPY)}, found type {code!r}")
    return known.name


def _little_endian(body: bytes, code: str) -> bytes:
    size = int(code[2:])
    if code[0] != ">" or size == 1:
        return body
    swapped = bytearray(len(body))
    for i in range(size):
        swapped[i::size] = body[size - 1 - i :: size]
    return bytes(swapped)


def _from_fortran(body: bytes, shape: Tuple[int, ...], size: int) -> bytes:
    """Transposes column-major data: C order visits the last axis fastest."""
    if len(shape) < 2 or not body:
        return body
    strides: List[int] = []
    step = 1
    for extent in shape:
        strides.append(step)
        step *= extent
    offsets = [0]
    for extent, stride in zip(shape, strides):
        offsets = [o + i * stride for o in offsets for i in range(extent)]
    return b"".join(body[o * size : (o + 1) * size] for o in offsets)


def _member_name(info: zipfile.ZipInfo) -> str:
    if not info.filename.endswith(".npy"):
        raise InputError(f"expected members ending in .npy, found '{info.filename}'")
    return info.filename[: -len(".npy")]


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    if info.file_size > _MAX_BYTES:
        raise InputError(
            f"'{info.filename}': expected at most {_MAX_BYTES} bytes, found {info.file_size}"
        )
    try:
        return read_npy(archive.read(info))
    except InputError as error:
        raise InputError(f"'{info.filename}': {error}") from None
