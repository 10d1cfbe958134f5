"""gemm() of f16, with a library whose f16 product was built from RVV's vectors for this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device import gemm
from edgekit.device.runtime.agent import kernels_check
from edgekit.device.runtime.arrays import buffers
from edgekit.device.runtime.arrays.find import LIBRARY_VARIABLE
from edgekit.device.runtime.arrays.gemm import _open_library
from edgekit.device.runtime.arrays.gemm_library import GemmLibrary
from edgekit.device.runtime.errors import InputError
from edgekit.host.compiler.costs.methods.gemm import half_method
from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase
from edgekit.host.compiler.toolchain.gemm_blob import table_blob
from edgekit.host.compiler.toolchain.kernels import half_units, kernel_units
from edgekit.host.compiler.toolchain.zig import TranslationUnit
from edgekit.host.deploy.bundle.references import reference_products
from edgekit.kb.features import GemmShape, Sequences, key_of
from edgekit.kb.targets.board import load_board
from tests.support.half_cases import check_product
from tests.support.toolchains import toolchain_for

pytestmark = pytest.mark.slow
_PRESENT = "const char *ek_gemm_f16_missing(void) {\n    return 0;\n}\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of this machine, with RVV's f16 product."""
    board = load_board("local")
    rvv = replace(board, simd="rvv128", extras=("zvfh",))
    units = [replace(each, extras=()) for each in half_units(rvv) if not each.plain]
    path = tmp_path_factory.mktemp("half") / "kernels.so"
    units += [*kernel_units(board), TranslationUnit("half_features", _PRESENT)]
    path.write_bytes(toolchain_for(board).build(units))
    return path


@pytest.fixture
def halves(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """gemm() takes that library."""
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library))
    _open_library.cache_clear()
    yield
    _open_library.cache_clear()


def _random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


@pytest.mark.usefixtures("halves")
@pytest.mark.parametrize("threads", [1, 2])
def test_products_are_numpys(threads: int) -> None:
    a, b = _random(40, 300), _random(300, 50)
    bias = _random(50)
    found, why = gemm(a, b, threads, bias=bias, explain=True)
    check_product(found, a, b, bias)
    assert (why.rule, why.row) == ("analytic", None)
    views = a[::-2, 1::3], b[::-3].T[::-1][:, :100].T
    check_product(gemm(*views, threads), *views)
    for m, k, n in ((0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1)):
        check_product(gemm(a[:m, :k], b[:k, :n], threads), a[:m, :k], b[:k, :n])


def test_rows_of_the_table_choose_the_method(library: Path, tmp_path: Path) -> None:
    core, shape = load_board("local").platform, GemmShape(40, 300, 50)
    row = GemmRow(key_of(shape, 0, Sequences(), "f16"), half_method(12, 8, True), shape, "estimate")
    file = tmp_path / "core.table"
    file.write_bytes(table_blob(KnowledgeBase((core,), rows=(row,)), core))
    how, rule = GemmLibrary(library, file).lookup("f16", 40, 50, 300)
    assert (how.nr, how.pack_b, rule) == (8, True, "exact")


@pytest.mark.usefixtures("halves")
def test_out_takes_the_result() -> None:
    a, b = _random(9, 20), _random(20, 9)
    whole = np.zeros((11, 20), np.float16)
    for out in (whole[1:10, 3:12], np.zeros((9, 9), np.float16).T, np.zeros((9, 18))[:, ::2]):
        out = out.astype(np.float16) if out.dtype != np.float16 else out
        assert gemm(a, b, out=out) is out
        check_product(out, a, b)
    whole[1:10, 3:12] = 0
    assert not whole.any()
    wanted = gemm(a[:, :9], b[:9])
    assert np.array_equal(gemm(a[:, :9], b[:9], out=(inside := a[:, :9])), wanted)
    assert inside.base is a


@pytest.mark.usefixtures("halves")
def test_plain_buffers_have_results_of_bits() -> None:
    a, b = _random(5, 20), _random(20, 7)
    found = gemm(memoryview(a), memoryview(b))
    assert (found.format, found.shape) == ("H", (5, 7))
    check_product(np.asarray(found).view(np.float16), a, b)


@pytest.mark.usefixtures("halves")
def test_health_check_computes_the_product_without_numpy() -> None:
    (reference,) = (r for r in reference_products(True) if r.kind == "gemm_f16")
    assert "gemm_f16" not in {r.kind for r in reference_products(False)}
    bits = [
        memoryview(x).cast("B").cast(buffers.FORMATS["f16"], x.shape)
        for x in reference.operands.values()
    ]
    found = kernels_check._COMPUTED["gemm_f16"](*bits)
    assert np.array_equal(np.asarray(found).view(np.float16), reference.result)


def test_cores_without_half_precision_say_what_to_do() -> None:
    a, b = _random(2, 3), _random(3, 4)
    for operands in ((a, b), (memoryview(a), memoryview(b))):
        with pytest.raises(InputError, match="found float16 and float16; convert them first"):
            gemm(*operands)
