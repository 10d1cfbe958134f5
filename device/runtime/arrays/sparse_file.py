"""Sparse matrices in files: SciPy's .npz format for CSR."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, Tuple

from edgekit.device.runtime.arrays.sparse_input import Csr, numpy
from edgekit.device.runtime.errors import InputError

_FIELDS = ("indptr", "indices", "data", "shape")
DAMAGED = (  # what NumPy raises for files that are no arrays, or were
    zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, OSError, ValueError,
    EOFError, KeyError, TypeError, AttributeError, SyntaxError, RuntimeError, MemoryError,
)  # fmt: skip


def read_sparse_npz(path: Path) -> Tuple[Any, Any, Any, Any]:
    """Reads indptr, indices, data and shape, unchecked; InputError if the file is not a CSR
    matrix."""
    np = numpy()
    try:
        with np.load(path, allow_pickle=False) as file:
            kind = bytes(file["format"].tobytes()).decode("ascii", "replace").strip("\0")
            if kind != "csr":
                raise InputError(
                    f"{path.name}: expected a CSR matrix, found '{kind[:20]}'; save matrix.tocsr()"
                )
            indptr, indices, data, shape = (file[name] for name in _FIELDS)
            return indptr, indices, data, shape
    except FileNotFoundError:
        raise InputError(f"{path}: expected a sparse matrix, found no file") from None
    except DAMAGED as error:
        raise InputError(
            f"{path.name}: expected a sparse matrix (.npz with {', '.join(_FIELDS)}), "
            f"found: {error}"
        ) from None


def write_sparse_npz(path: Path, csr: Csr) -> None:
    """Writes a matrix; InputError if the file cannot be written."""
    np = numpy()
    shape = np.array(csr.shape, np.int64)
    try:
        with path.open("wb") as file:
            np.savez(
                file,
                format=np.array(b"csr"),
                shape=shape,
                indptr=csr.indptr,
                indices=csr.indices,
                data=csr.data,
            )
    except OSError as error:
        raise InputError(
            f"{path}: expected to write {csr.data.nbytes} bytes of values, found: {error.strerror}"
        ) from None
