"""Serializes the table of one platform for the lookup in C (device/kernels/gemm/table.c).

Little-endian: a header that names the platform, the sequences (int64: scale, m, n, k), then the
rows in key order. The output is deterministic.
"""

from __future__ import annotations

import struct

from edgekit.host.compiler.tables.gemm_table import FEATURES, GemmRow, KnowledgeBase

DTYPES = ("f32", "s8", "u8", "f16")  # index is ek_gemm_dtype of gemm.h
_PACKED = {"none": 0, "a": 4, "b": 8}  # or-ed to the dtype
_MAGIC = b"EKGEMMT3"
_HEADER = struct.Struct("<8s2I4I4BI64s")
_ROW = struct.Struct("<4i2i 5i3Bx 3qd2i")
_LARGEST = (1 << 31) - 1


def table_blob(table: KnowledgeBase, platform: str) -> bytes:
    """The rows of `platform`; empty if the table does not contain that platform.

    Rows with element types unsupported by the C library, and rows with blocks beyond 31 bits, are
    omitted.
    """
    sequences = [getattr(table.sequences, name) for name in FEATURES]
    index = table.platforms.index(platform) if platform in table.platforms else -1
    rows = [
        _pack_row(r) for r in sorted(table.rows, key=lambda r: r.key) if _is_encodable(r, index)
    ]
    header = _HEADER.pack(
        _MAGIC,
        len(rows),
        int(table.sequences.tie == "high"),
        *map(len, sequences),
        *(FEATURES.index(name) for name in table.priority),
        0,
        platform.encode("ascii"),
    )
    values = [value for sequence in sequences for value in sequence]
    return b"".join((header, struct.pack(f"<{len(values)}q", *values), *rows))


def _is_encodable(row: GemmRow, platform: int) -> bool:
    largest = max(*_block_sizes(row), row.key.threads)
    return row.key.platform == platform and row.key.dtype in DTYPES and largest <= _LARGEST


def _block_sizes(row: GemmRow) -> tuple[int, ...]:
    """Blocks and tile; all 0 if the analytic method is best."""
    how = row.method
    return (0, 0, 0, 0, 0) if how is None else (how.mc, how.kc, how.nc, how.mr, how.nr)


def _pack_row(row: GemmRow) -> bytes:
    key, how, shape = row.key, row.method, row.shape
    flags = (how.pack_a, how.pack_b, how.split == "n") if how else (False, False, False)
    return _ROW.pack(
        *(getattr(key, name) for name in FEATURES),
        DTYPES.index(key.dtype) | _PACKED[key.packed],
        key.threads,
        *_block_sizes(row),
        *flags,
        *(shape.m, shape.k, shape.n),
        row.gflops or 0.0,
        row.relaxes,
        row.radius or 0,
    )
