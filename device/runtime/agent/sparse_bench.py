"""Times a sparse matrix in several block formats on this board; standard library only.

The request is a JSON file: {"matrix": a CSR .npz, "settings": [...]} and optionally "threads" (1),
"seconds" (1, the time budget), "count" (instructions instead of time), "triad" (also measure memory
bandwidth), "hotspots" (profile the last setting). The last setting is the default: the others
alternate with it.
"""

from __future__ import annotations

import ctypes
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Tuple

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.interleave import CUTOFF, Timer, interleave, pinned
from edgekit.device.runtime.agent.npz import Array, read_npz
from edgekit.device.runtime.agent.timed_products import (
    MOST_SECONDS,
    MOST_THREADS,
    product_costs,
)
from edgekit.device.runtime.arrays.gemm_library import Block
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_library import (
    OPERAND_BYTES,
    SUM_BYTES,
    BlockMatrix,
    CsrRows,
    SparseLibrary,
)
from edgekit.device.runtime.errors import InputError

_FIELDS = ("indptr", "indices", "data", "shape")
_TRIAD_FLOATS = 1 << 24  # three arrays of 64 MiB: beyond the caches of boards
_TRIAD_SHARE = 24  # free memory per float in bytes, which limits the arrays if memory is short


@dataclass(frozen=True)
class SparseRequest:
    """See the module docstring."""

    matrix: Path
    settings: Tuple[BlockSettings, ...]
    threads: int = 1
    seconds: float = 1.0
    count: bool = False
    triad: bool = False
    hotspots: bool = False


class CsrFile:
    """A CSR matrix in this process's memory, read from a file and checked."""

    def __init__(self, path: Path, library: SparseLibrary) -> None:
        """InputError if the file is not a CSR matrix, or the matrix is not sorted and finite."""
        arrays = read_npz(path)
        if missing := [name for name in _FIELDS if name not in arrays]:
            raise InputError(f"{path.name}: expected a CSR matrix, found no {missing[0]}")
        self.stored = arrays["data"].dtype
        if self.stored not in ("f32", "f64", "f16", "s8"):
            raise InputError(f"{path.name}: expected f32, f64, f16 or s8, found {self.stored}")
        self.start = _to_ctypes_array(arrays["indptr"], ctypes.c_int64)
        self.index = _to_ctypes_array(arrays["indices"], ctypes.c_int32)
        rows, cols = (int(n) for n in _to_ctypes_array(arrays["shape"], ctypes.c_int64))
        self._values = ctypes.create_string_buffer(arrays["data"].data, len(arrays["data"].data))
        sizes = (len(self.index), arrays["data"].shape[0])
        ends = (self.start[0], self.start[len(self.start) - 1])
        if len(self.start) != rows + 1 or sizes[0] != sizes[1] or ends != (0, sizes[0]):
            raise InputError(f"{path.name}: expected offsets of {sizes[0]} values, found others")
        addresses = (ctypes.addressof(a) for a in (self.start, self.index, self._values))
        self.rows = CsrRows(self.stored, rows, cols, *addresses)
        fault = library.check(self.rows)
        if fault.kind != "good":
            raise InputError(
                f"{path.name}: expected sorted rows of finite values, found a fault in row "
                f"{fault.row} ({fault.kind}); write it with edgekit.device.SparseMatrix.save"
            )


def bench(path: Path, library: SparseLibrary) -> Dict[str, Any]:
    """Answers a request: features, and times or instructions for each setting."""
    request = read_request(path)
    csr = CsrFile(request.matrix, library)
    if request.hotspots:
        return _profile_hotspots(csr, request, library)
    found = library.features(csr.rows)
    stored = [library.build(csr.rows, how) for how in request.settings]
    x = Block(csr.rows.cols * OPERAND_BYTES[csr.stored])
    y = Block(csr.rows.rows * SUM_BYTES[csr.stored])

    def prepare() -> List[Timer]:
        return [library.spmv_timer(form, x.address, y.address, request.threads) for form in stored]

    costs = product_costs(prepare, request.threads, request.seconds, request.count, CUTOFF)
    with pinned(request.threads):
        triad = _measure_triad(library, request.threads) if request.triad else None
    rows = zip(request.settings, stored, costs)
    return {
        "schema": "edgekit.spmv-bench/1",
        "features": {**asdict(found), "spread": found.spread, "band": found.band},
        "height": library.height(csr.stored),
        "triad_bytes_per_second": triad,
        "results": [{"settings": asdict(h), **_storage_facts(s), **cost} for h, s, cost in rows],
    }


def _profile_hotspots(
    csr: CsrFile, request: SparseRequest, library: SparseLibrary
) -> Dict[str, Any]:
    """Profiles products on one thread, because a fork has no others."""
    from edgekit.device.runtime.agent.hotspots import watch

    form = library.build(csr.rows, request.settings[-1])
    x = Block(csr.rows.cols * OPERAND_BYTES[csr.stored])
    y = Block(csr.rows.rows * SUM_BYTES[csr.stored])
    timer = library.spmv_timer(form, x.address, y.address, 1)
    nanoseconds = min(interleave([timer], request.seconds)[0])
    rate = 1e9 * (form.bytes + x.bytes + y.bytes) / nanoseconds
    count = max(int(1e8 / nanoseconds), 1)
    found = watch(lambda: timer(count), rate / _measure_triad(library, 1))
    return {"schema": "edgekit.spmv-hotspots/1", "hotspots": asdict(found)}


def read_request(path: Path) -> SparseRequest:
    """Reads the request in a file; InputError describes the invalid part."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        settings = tuple(BlockSettings.of(how) for how in fields.pop("settings"))
        request = SparseRequest(Path(fields.pop("matrix")), settings, **fields)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path.name}: expected an spmv-bench request, found: {error}") from None
    if not settings or not 1 <= request.threads <= MOST_THREADS:
        raise InputError(
            f"{path.name}: expected settings and 1 to {MOST_THREADS} threads, found "
            f"{len(settings)} settings and {request.threads} threads"
        )
    if not 0 < request.seconds <= MOST_SECONDS:
        raise InputError(
            f"{path.name}: expected seconds above 0, at most {MOST_SECONDS:g}, found "
            f"{request.seconds}"
        )
    if request.count and request.threads > 1:
        raise InputError("expected 1 thread for counting instructions, found more")
    return request


def _to_ctypes_array(array: Array, kind: Any) -> Any:
    """Copies to a ctypes array; InputError unless the dtype is a 4- or 8-byte integer."""
    sizes = {"s32": ctypes.c_int32, "s64": ctypes.c_int64}
    if array.dtype not in sizes or len(array.shape) != 1:
        raise InputError(f"expected whole numbers in 1 dimension, found {array.dtype}")
    given = (sizes[array.dtype] * array.shape[0]).from_buffer_copy(array.data)
    return given if sizes[array.dtype] is kind else (kind * len(given))(*given)


def _storage_facts(stored: BlockMatrix) -> Dict[str, Any]:
    c = stored.c
    padding = c.slots * c.height / c.nonzeros if c.nonzeros else 1.0
    return {"padding": padding, "bytes": stored.bytes}


def _measure_triad(library: SparseLibrary, threads: int) -> float:
    have = features.memory_bytes().available or 0
    floats = min(_TRIAD_FLOATS, have // _TRIAD_SHARE) if have else _TRIAD_FLOATS // 16
    timer = library.triad_timer(floats, threads)
    times = interleave([timer], 0.5)[0]
    return 12e9 * floats / min(times)
