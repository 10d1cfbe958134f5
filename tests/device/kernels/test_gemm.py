"""The GEMM library against NumPy: all dtypes, strides, methods, epilogues and x86 ISAs here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.kb.targets.board import BoardProfile
from tests.support.gemm_cases import (
    DTYPES,
    Epilogue,
    Layout,
    Product,
    build,
    check,
    laid_out,
    random_product,
    run_here,
    weights_by_few,
)
from tests.support.kernel_runs import product_params

_COUNT = 300


@pytest.fixture(scope="module", params=product_params())
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    board: BoardProfile = request.param
    return build(board, tmp_path_factory.mktemp(board.simd) / "products.so")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_are_numpys(library, dtype):
    rng = np.random.default_rng(len(dtype))
    products = [random_product(rng, dtype) for _ in range(_COUNT)]
    check(products, run_here(library, products))


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_by_few_columns_are_numpys(library, dtype):
    products = weights_by_few(np.random.default_rng(3), dtype)
    check(products, run_here(library, products))


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_nothing(library, dtype):
    rng = np.random.default_rng(7)
    products = [random_product(rng, dtype) for _ in range(_COUNT // 2)]
    products += [_large(rng, dtype, split, packed) for split in (0, 1) for packed in (-1, 0, 1)]
    assert run_here(library, products) == run_here(library, products, threads=3)


def test_sums_wrap_around(library):
    k = 140_000  # 128 * 128 * k exceeds 2^31
    rng = np.random.default_rng(0)
    lowest = np.full((3, k), -128, np.int8)
    products = [
        _plain(rng, "s8", lowest, lowest.T[:, :2]),
        _plain(rng, "s8", lowest[:1], lowest.T[:, :2]),
        _plain(rng, "u8", np.full((3, k), 255, np.uint8), lowest.T[:, :1]),
    ]
    check(products, run_here(library, products))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_by_panels_of_many_vectors(library, dtype):
    """Some cores read B in place, four vectors of columns at a time."""
    rng = np.random.default_rng(8)
    left, right = {"f32": ("f4", "f4"), "s8": ("i1", "i1"), "u8": ("u1", "i1")}[dtype]
    products = []
    for n in (65, 97, 128):
        a, b = (rng.integers(0, 100, shape).astype(kind) for shape, kind in
                (((1, 9), left), ((9, n), right)))  # fmt: skip
        c = np.zeros((1, n), np.float32 if dtype == "f32" else np.int32)
        layouts = [Layout(x.ravel(), 0, x.shape[1], 1, x.shape) for x in (a, b, c)]
        products.append(Product(dtype, *layouts, (1, 64, n, 1, 128, 0, 0, 0), epilogue=Epilogue()))
    check(products, run_here(library, products))


def _plain(rng: np.random.Generator, dtype: str, a: np.ndarray, b: np.ndarray) -> Product:
    c = np.zeros((a.shape[0], b.shape[1]), np.float32 if dtype == "f32" else np.int32)
    method = (64, 64, 64, 8, 48, 0, 0, 0)
    layouts = (laid_out(rng, x) for x in (a, b, c))
    return Product(dtype, *layouts, method, epilogue=Epilogue())


def _large(rng: np.random.Generator, dtype: str, split: int, packed: int) -> Product:
    kinds = {"f32": ("f4", "f4"), "s8": ("i1", "i1"), "u8": ("u1", "i1")}[dtype]
    a, b = (rng.integers(0, 100, shape).astype(kind) for shape, kind in
            zip(((150, 90), (90, 130)), kinds, strict=True))  # fmt: skip
    c = np.zeros((150, 130), np.float32 if dtype == "f32" else np.int32)
    layouts = (laid_out(rng, x) for x in (a, b, c))
    method = (32, 64, 48, 8, 32, packed != 0, packed != 1, split)
    return Product(dtype, *layouts, method, packed)
