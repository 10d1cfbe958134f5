"""Each f32 register tile, and NaN and infinity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.kb.targets.board import BoardProfile
from tests.support.gemm_cases import Epilogue, Layout, Product, build, check, laid_out, run_here
from tests.support.kernel_runs import x86_params
from tests.support.places import few_or_all

_WHOLE = 1 << 20  # a block larger than any dimension


@pytest.fixture(scope="module", params=x86_params())
def board(request: pytest.FixtureRequest) -> BoardProfile:
    found: BoardProfile = request.param
    return found


@pytest.fixture(scope="module")
def library(board: BoardProfile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(board, tmp_path_factory.mktemp(board.simd) / "products.so")


def _product(
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    tile: tuple[int, int],
    packed: int = -1,
    blocks: tuple[int, int, int] = (_WHOLE, _WHOLE, _WHOLE),
) -> Product:
    m, n, k = shape
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    layouts = (laid_out(rng, x.astype(np.float32)) for x in (a, b, np.zeros((m, n))))
    return Product("f32", *layouts, (*blocks, *tile, 0, 0, 0), packed)


def test_every_tile_computes_its_own_size(board, library):
    rng = np.random.default_rng(3)
    vl = board.isa.vl
    products = [
        _product(rng, (height, nv * vl - height % 2, 19), (height, nv * vl), packed)
        for nv, tallest in enumerate(board.isa.columns.f32, 1)
        for height in range(1, tallest + 1)
        for packed in (-1, 0, 1)
    ]
    check(products, run_here(library, products))


def test_blocks_of_k_are_added_up(library):
    rng = np.random.default_rng(4)
    shapes = [(61, 53, 331), (8, 48, 64), (9, 49, 65), (1, 127, 131), (127, 1, 131)]
    tiles = [(8, 48), (12, 32), (48, 7), (4, 4)]
    products = [
        _product(rng, shape, tile, packed, (16, 32, 48))
        for shape in shapes
        for tile in tiles
        for packed in (-1, 0, 1)
    ]
    check(products, run_here(library, products))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_times_a_large_matrix(library, threads):
    """Unpacked B larger than 1 MiB is read row by row, for few and for many columns of C."""
    rng = np.random.default_rng(6)
    products = []
    for n, k in [(517, 521), (1024, 263), (90_001, 3), (65, 4099), (2049, 129)]:
        for accumulate in (False, True):
            values = [rng.standard_normal(size).astype(np.float32) for size in ((1, k), (k, n + 3))]
            a = Layout(values[0].ravel(), 0, k, 1, (1, k))
            b = Layout(values[1].ravel(), 0, n + 3, 1, (k, n))
            c = Layout(np.ones(n + 5, np.float32), 2, n, 1, (1, n))
            bias = rng.standard_normal(n).astype(np.float32)
            epilogue = Epilogue(bias=bias, limits_f32=(-9.0, 9.0)) if n % 2 else Epilogue()
            method = (_WHOLE, 64, _WHOLE, 1, 48, 0, 0, n % 2)
            products.append(
                Product("f32", a, b, c, method, accumulate=accumulate, epilogue=epilogue)
            )
    check(products, run_here(library, products, threads))


@pytest.mark.parametrize("shape", [(5, 40, 9), (1, 40, 33), (40, 1, 33)])
@pytest.mark.parametrize("packed", few_or_all([-1, 0, 1], [0]))
def test_infinity_and_nan_come_through(library, shape, packed):
    rng = np.random.default_rng(5)
    product = _product(rng, shape, (40 if shape[1] == 1 else 4, shape[1]), packed)
    product.a.view()[0, 2] = np.nan
    product.a.view()[shape[0] - 1, 3] = -np.inf
    product.b.view()[4, shape[1] - 1] = np.inf
    made = np.frombuffer(run_here(library, [product]), np.float32)
    with np.errstate(invalid="ignore"):
        expected = product.expected().astype(np.float32)
    np.testing.assert_allclose(product.c.view(made), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("k", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("packed", [-1, 0, 1])
def test_thin_products(board, library, k, packed):
    """For k <= 4, B stays in registers. Covers every tile width, more rows than a tile or a batch
    of 32, bias, clamps, and accumulation."""
    rng = np.random.default_rng(k)
    vl = board.isa.vl
    products = []
    for nv, tallest in enumerate(board.isa.columns.f32, 1):
        for m in (1, tallest + 1, 33, 70):
            for n in (nv * vl, max(2 * nv * vl - 3, 2), 1):
                along_n, along_m = (rng.standard_normal(size).astype(np.float32) for size in (n, m))
                which = int(rng.integers(3))
                epilogue = Epilogue(
                    bias=(None, along_n, along_m)[which],
                    per_row=which == 2,
                    limits_f32=(-0.5, 0.75) if rng.integers(2) else (-np.inf, np.inf),
                )
                made = _product(rng, (m, n, k), (tallest, nv * vl), packed)
                more = bool(rng.integers(2))
                products.append(replace(made, epilogue=epilogue, accumulate=more))
    check(products, run_here(library, products))


@pytest.mark.slow
@pytest.mark.parametrize("packed", [-1, 0, 1])
def test_large_operands(library, packed):
    """B larger than 1 MiB, whose next panel is prefetched, in place, copied and packed; C larger
    than 2 MiB, which is written in long runs."""
    rng = np.random.default_rng(9)
    shapes = [(41, 3700, 72), (8, 2049, 130), (200, 3136, 16), (130, 1024, 260), (33, 9216, 1)]
    products = []
    for m, n, k in shapes:
        a, b = (rng.standard_normal(size).astype(np.float32) for size in ((m, k), (k, n)))
        layouts = [
            Layout(x.ravel(), 0, x.shape[1], 1, x.shape) for x in (a, b, np.zeros((m, n), "f4"))
        ]
        products += [
            Product("f32", *layouts, (*blocks, 9, 48, 0, pack_b, 0), packed)
            for blocks in [(_WHOLE, _WHOLE, _WHOLE), (64, 96, 48), (_WHOLE, 32, _WHOLE)]
            for pack_b in (0, 1)
        ]
    check(products, run_here(library, products))
