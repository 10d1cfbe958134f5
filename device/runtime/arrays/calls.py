"""Records of the products that programs compute: text in a batch, parsed by hosts."""

from __future__ import annotations

import re
from dataclasses import astuple, fields
from typing import Any, Dict, NamedTuple, Sequence, Tuple, Union

from edgekit.device.runtime.arrays.gemm_library import DTYPES, GemmMethod
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_library import STORED
from edgekit.device.runtime.arrays.sparse_table import BANDS, SPREADS, Key, MatrixFeatures, key_for
from edgekit.device.runtime.errors import InputError

GEMM, SPMV, SPMM, OUTLIER, NNA = "gemm", "spmv", "spmm", "outlier", "nna"
KINDS = (GEMM, SPMV, SPMM, OUTLIER, NNA)
TRIAL = "-trial"  # ends the kind of products that were computed again, to compare methods
_LARGEST = (1 << 31) - 1
_SIZE = "([0-9]{1,10})"
_SIZES = f"{_SIZE}x{_SIZE}x{_SIZE}"
_MATRIX = f"{_SIZE}x{_SIZE}:([0-9]{{1,19}})"
_DENSE = re.compile(f"([a-z0-9]+) {_SIZES}")
_SPARSE = re.compile(f"([a-z0-9]+) {_MATRIX} ([a-z]+) ([a-z]+)")
_SPMM = re.compile(f"([a-z0-9]+) {_MATRIX} x{_SIZE}")
_METHOD = re.compile(f"{_SIZE}x{_SIZE} {_SIZES} (a?b?|-) ([mn])")
_SETTINGS = re.compile(f"{_SIZE} {_SIZE} {_SIZE} ([01]) ([01]) ([0-4]) {_SIZE}")


class Call(NamedTuple):
    """kind: one of KINDS. product: element type and sizes. method: how it was computed."""

    kind: str
    product: str
    method: str


class GemmCall(NamedTuple):
    """A product of [m, k] and [k, n]."""

    dtype: str
    m: int
    k: int
    n: int
    method: GemmMethod


class SpmvCall(NamedTuple):
    """A product of a sparse matrix and a vector; `key` as in a table of sparse matrices."""

    key: Key
    rows: int
    cols: int
    nonzeros: int
    settings: BlockSettings


def dense_text(dtype: str, m: int, k: int, n: int) -> str:
    """The product of dense matrices [m, k] and [k, n]."""
    return f"{dtype} {m}x{k}x{n}"


def spmm_text(stored: str, rows: int, cols: int, nonzeros: int, n: int) -> str:
    """The product of a sparse matrix and a dense one of n columns."""
    return f"{stored} {rows}x{cols}:{nonzeros} x{n}"


def spmv_text(found: MatrixFeatures) -> str:
    """The product of a sparse matrix and a vector."""
    sizes = f"{found.rows}x{found.cols}:{found.nonzeros}"
    return f"{found.stored} {sizes} {found.spread} {found.band}"


def method_text(how: GemmMethod) -> str:
    """The method of a product of dense matrices."""
    packs = ("a" if how.pack_a else "") + ("b" if how.pack_b else "") or "-"
    return f"{how.mr}x{how.nr} {how.mc}x{how.kc}x{how.nc} {packs} {how.split}"


def settings_text(how: BlockSettings) -> str:
    """The storage settings of a sparse matrix, in the order of the class."""
    return " ".join(str(int(value)) for value in astuple(how))


def parse_call(call: Call) -> Union[GemmCall, SpmvCall, None]:
    """The product and the method of a call; None if its kind has no table. InputError unless both
    are possible."""
    if call.kind == SPMM:
        _sparse_sizes(_match(_SPMM, call.product, "f32 ROWSxCOLS:NONZEROS xN"))
    elif call.kind != SPMV:
        dtype, *sizes = _match(_DENSE, call.product, "f32 MxKxN")
        m, k, n = (_size(text, 0) for text in sizes)
        if call.kind == GEMM:
            return _gemm_call(dtype, m, k, n, call.method)
    else:
        return _spmv_call(call)
    return None


def _gemm_call(dtype: str, m: int, k: int, n: int, text: str) -> GemmCall:
    _one_of(dtype, DTYPES)
    mr, nr, mc, kc, nc, packs, split = _match(_METHOD, text, "MRxNR MCxKCxNC ab m")
    sizes = {"mc": mc, "kc": kc, "nc": nc, "mr": mr, "nr": nr}
    given = {
        **{name: _size(each, 1) for name, each in sizes.items()},
        "pack_a": "a" in packs,
        "pack_b": "b" in packs,
        "split": split,
    }
    return GemmCall(dtype, m, k, n, GemmMethod.of(given))


def _spmv_call(call: Call) -> SpmvCall:
    stored, *sizes, spread, band = _match(
        _SPARSE, call.product, "f32 ROWSxCOLS:NONZEROS random wide"
    )
    rows, cols, nonzeros = _sparse_sizes((stored, *sizes))
    _one_of(spread, SPREADS)
    _one_of(band, BANDS)
    numbers = map(int, _match(_SETTINGS, call.method, "seven numbers of settings"))
    settings: Dict[str, Any] = {
        each.name: bool(number) if each.type == "bool" else number
        for each, number in zip(fields(BlockSettings), numbers)
    }
    key = key_for(stored, rows, nonzeros / rows if rows else 0.0, spread, band)
    return SpmvCall(key, rows, cols, nonzeros, BlockSettings.of(settings))


def _sparse_sizes(found: Sequence[str]) -> Tuple[int, int, int]:
    _one_of(found[0], STORED)
    rows, cols, nonzeros = _size(found[1], 0), _size(found[2], 0), int(found[3])
    if nonzeros > rows * cols:
        raise _impossible(f"at most {rows * cols} non-zeros in {rows} x {cols}", nonzeros)
    return rows, cols, nonzeros


def _match(pattern: "re.Pattern[str]", text: str, expected: str) -> Tuple[str, ...]:
    found = pattern.fullmatch(text)
    if found is None:
        raise _impossible(expected, repr(text[:80]))
    return found.groups()


def _size(text: str, least: int) -> int:
    value = int(text)
    if not least <= value <= _LARGEST:
        raise _impossible(f"sizes of {least} to {_LARGEST}", value)
    return value


def _one_of(text: str, known: Sequence[str]) -> None:
    if text not in known:
        raise _impossible("one of " + ", ".join(known), repr(text))


def _impossible(expected: str, found: object) -> InputError:
    return InputError(f"call of a product: expected {expected}, found {found}")
