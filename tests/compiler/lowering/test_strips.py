"""The compiler builds the same strips as the library does on a board."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_input import Csr
from edgekit.device.runtime.arrays.sparse_library import SparseLibrary
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.lowering.sparse.strips import Sparse, build_strips, strip_height
from edgekit.kb.targets.board import BoardProfile
from tests.support.kernel_runs import x86_params
from tests.support.sparse_cases import build, random_case

_FIELDS = ("strip", "values", "index", "order")


@pytest.fixture(scope="module", params=x86_params())
def board(request: pytest.FixtureRequest) -> BoardProfile:
    return request.param


@pytest.fixture(scope="module")
def library(board: BoardProfile, tmp_path_factory: pytest.TempPathFactory) -> SparseLibrary:
    path: Path = tmp_path_factory.mktemp(board.simd) / "products.so"
    return SparseLibrary(build(board, path))


def _matrices() -> list[tuple[Array, BlockSettings]]:
    rng = np.random.default_rng(8)
    found = []
    for case in (random_case(rng, "f32") for _ in range(120)):
        width, window, wide, diagonal, windows, size, _ = case.how  # no parts in layers
        how = BlockSettings(max(width, 1), window, wide, bool(diagonal), bool(windows), size)
        found.append((np.where(case.pattern, case.dense, 0).astype(np.float32), how))
    for density in (0.02, 0.1, 0.3, 1.0):
        dense = rng.standard_normal((70, 600)).astype(np.float32)
        found.append((dense * (rng.random(dense.shape) < density), BlockSettings(8)))
    found.append(
        (np.eye(70, dtype=np.float32) + np.eye(70, k=3, dtype=np.float32), BlockSettings(8))
    )
    return [(dense, how) for dense, how in found if dense.size]


@pytest.mark.slow
def test_they_are_equal_to_the_byte(board, library):
    kinds = set()
    for dense, how in _matrices():
        a = Sparse.of(dense)
        csr = Csr(dense.shape, a.start.astype(np.int64), a.column.astype(np.int32), a.value)
        stored = library.build(csr.rows(), how)
        made = build_strips(a, how, board.isa)
        m = stored.c
        assert (m.height, m.slots) == (strip_height(board.isa, "f32"), made.slots)
        for name in _FIELDS:
            wanted = getattr(made, name)
            at = getattr(m, name)
            at = at if isinstance(at, int) else ctypes.addressof(at.contents) if m.strips else 0
            assert ctypes.string_at(at, wanted.nbytes) == wanted.tobytes(), (name, how)
        kinds |= set(made.strip["kind"].tolist())
        measured, features = (f.__dict__ for f in (library.features(csr.rows()), a.features()))
        assert measured == {
            k: pytest.approx(v) if isinstance(v, float) else v for k, v in features.items()
        }
    assert kinds == ({0, 1, 2, 3, 4} if board.simd == "avx512vnni" else {0, 1, 2, 4})
