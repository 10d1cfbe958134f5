"""gemm() against NumPy: any shape and strides, and clear errors for invalid operands."""

from __future__ import annotations

import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgekit.device import gemm
from edgekit.device.runtime.arrays.find import find_library
from edgekit.device.runtime.arrays.gemm_library import GemmLibrary
from edgekit.device.runtime.errors import InputError

_PAIRS = [("float32", "float32"), ("int8", "int8"), ("uint8", "int8")]
_SIZE = st.one_of(st.integers(0, 4), st.integers(0, 70))
_LAYOUTS = st.sampled_from(["rows", "columns", "slice", "reversed", "repeated"])
_SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=200)


def matrix(rng: np.random.Generator, shape: tuple[int, int], dtype: str, layout: str) -> NDArray:
    """Random values over the range of `dtype`, in one of several memory layouts."""
    rows, columns = shape
    wide = (rows * 2 + 1, columns * 3 + 1)
    values = (
        rng.standard_normal(wide).astype(dtype)
        if dtype == "float32"
        else rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, wide, dtype, endpoint=True)
    )
    if layout == "slice":
        return values[1 : rows + 1, 1 : 3 * columns : 3]
    if layout == "repeated":
        return np.broadcast_to(values[:1, :columns], shape)
    whole = np.ascontiguousarray(values[:rows, :columns])
    return {"rows": whole, "columns": np.asfortranarray(whole), "reversed": whole[::-1, ::-1]}[
        layout
    ]


def expected(a: NDArray, b: NDArray) -> NDArray:
    if a.dtype == np.float32:
        return a.astype(np.float64) @ b.astype(np.float64)
    return (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)


def check(found: NDArray, wanted: NDArray, k: int) -> None:
    if found.dtype == np.int32:
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * max(k, 1))


@pytest.mark.parametrize("pair", _PAIRS)
@given(_SIZE, _SIZE, _SIZE, _LAYOUTS, _LAYOUTS, st.booleans(), st.integers(1, 2))
@_SLOW
def test_products_are_numpys(pair, m, n, k, a_layout, b_layout, biased, threads):
    rng = np.random.default_rng(m * 7 + n * 5 + k)
    a, b = matrix(rng, (m, k), pair[0], a_layout), matrix(rng, (k, n), pair[1], b_layout)
    result = np.float32 if pair[0] == "float32" else np.int32
    bias = rng.integers(-100, 100, n).astype(result) if biased else None
    found = gemm(a, b, threads, bias=bias)
    assert found.dtype == result and found.shape == (m, n)
    check(found, expected(a, b) + (0 if bias is None else bias), k)


@pytest.mark.parametrize("pair", _PAIRS)
def test_a_large_product_in_blocks(pair):
    rng = np.random.default_rng(1)
    a, b = matrix(rng, (300, 700), pair[0], "rows"), matrix(rng, (700, 410), pair[1], "rows")
    for threads in (1, 2):
        check(gemm(a, b, threads), expected(a, b), 700)


@pytest.mark.parametrize("layout", ["rows", "columns", "slice", "reversed", "inside"])
def test_out_takes_the_result(layout):
    rng = np.random.default_rng(2)
    a, b = matrix(rng, (9, 20), "float32", "rows"), matrix(rng, (20, 13), "float32", "rows")
    outs = {
        "rows": np.zeros((9, 13), np.float32),
        "columns": np.zeros((13, 9), np.float32).T,
        "slice": np.zeros((18, 26), np.float32)[::2, ::2],
        "reversed": np.zeros((9, 13), np.float32)[::-1],
        "inside": np.zeros((11, 20), np.float32)[1:10, 3:16],
    }
    out = outs[layout]
    assert gemm(a, b, out=out) is out
    check(out, expected(a, b), 20)
    check(gemm(a, b, np.int64(2)), expected(a, b), 20)
    if layout == "inside":
        around = out.base.copy()
        around[1:10, 3:16] = 0
        assert not around.any()


def test_a_result_by_columns_is_looked_up_as_the_transposed_product():
    rng = np.random.default_rng(2)
    a, b = matrix(rng, (9, 20), "float32", "rows"), matrix(rng, (20, 13), "float32", "rows")
    bias, out = np.arange(13, dtype=np.float32), np.zeros((13, 9), np.float32).T
    _, why = gemm(a, b, out=out, bias=bias, explain=True)
    _, other = gemm(b.T, a.T, explain=True)
    assert why == replace(
        other, reason=f"{other.reason}; of the transposed product, as the result has columns"
    )
    check(out, expected(a, b) + bias, 20)


def test_out_may_be_empty():
    a, b, out = (np.zeros(shape, np.float32) for shape in ((0, 20), (20, 13), (0, 13)))
    assert gemm(a, b, out=out) is out


def test_out_may_be_an_operand():
    rng = np.random.default_rng(3)
    a, b = matrix(rng, (16, 16), "float32", "rows"), matrix(rng, (16, 16), "float32", "rows")
    wanted = expected(a, b)
    check(gemm(a, b, out=a), wanted, 16)


_F = np.zeros((2, 3), np.float32)
_G = np.zeros((3, 4), np.float32)


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ((_F, _F), {}, r"as many columns of a as rows of b, found \[2, 3\] and \[2, 3\]"),
        ((_F[0], _G), {}, r"a of 2 dimensions, found \[3\]"),
        (([[1.0]], _G), {}, "a to be an array, found list"),
        ((_F, _G.astype(np.float64)), {}, "found float32 and float64"),
        ((_F.astype(np.float16), _G.astype(np.float16)), {}, "and float16; convert them first"),
        ((_F.astype(">f4"), _G), {}, "found >f4 and float32"),
        ((_F.astype(np.int8), _G), {}, "found int8 and float32"),
        ((_F, _G, 0), {}, "1 to 256 threads, found 0"),
        ((_F, _G, "2"), {}, "1 to 256 threads, found '2'"),
        ((_F, _G), {"bias": np.zeros(3, np.float32)}, r"bias of float32 \[4\]"),
        ((_F, _G), {"bias": np.zeros(4)}, r"found float64 \[4\]"),
        ((_F, _G), {"bias": 3}, r"bias of float32 \[4\], found int"),
        ((_F, _G, True), {}, "1 to 256 threads, found True"),
        ((_F, _G), {"out": np.zeros((2, 4))}, r"out of float32 \[2, 4\]"),
        ((_F, _G), {"out": np.broadcast_to(np.float32(0), (2, 4))}, "read-only"),
    ],
)
def test_what_does_not_fit_is_named(arguments, options, message):
    with pytest.raises(InputError, match=message):
        gemm(*arguments, **options)


def test_a_product_too_large_for_memory_is_refused():
    one = np.zeros((1, 1), np.float32)
    high, wide = np.broadcast_to(one, (1 << 31, 1)), np.broadcast_to(one, (1, 1 << 31))
    with pytest.raises(InputError, match="memory for a result"):
        gemm(high, wide)


def _python(code: str, **environment: str) -> str:
    root = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(root), "PATH": "", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return done.stdout.strip()


_ERROR = """
import sys
{before}
from edgekit.device.runtime.errors import DeviceError
from edgekit.device import gemm
try:
    gemm({arguments})
except DeviceError as error:
    print(type(error).__name__, error)
"""
_ZEROS = "__import__('numpy').zeros((2, 2), 'f4'), __import__('numpy').zeros((2, 2), 'f4')"


def plain(values: NDArray) -> memoryview:
    """The same array without NumPy."""
    flat = array(values.dtype.char, values.tobytes())
    return memoryview(flat).cast("B").cast(values.dtype.char, list(values.shape))


@pytest.mark.parametrize("pair", _PAIRS)
def test_buffers_are_operands_without_numpy(pair):
    rng = np.random.default_rng(4)
    a, b = matrix(rng, (5, 70), pair[0], "rows"), matrix(rng, (70, 33), pair[1], "rows")
    bias = np.arange(33, dtype=np.float32 if pair[0] == "float32" else np.int32)
    wanted = expected(a, b) + bias
    found = gemm(plain(a), plain(b), bias=plain(bias))
    assert isinstance(found, memoryview) and found.shape == (5, 33)
    check(np.asarray(found), wanted, 70)
    out = plain(np.zeros_like(bias, shape=(5, 33)))
    assert gemm(plain(a), memoryview(plain(b)).toreadonly(), bias=bias.data, out=out) is out
    check(np.asarray(out), wanted, 70)


_P, _Q = plain(_F), plain(_G)


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ((_P, _P), {}, r"as many columns of a as rows of b, found \[2, 3\] and \[2, 3\]"),
        ((_P, bytes(12)), {}, "f32 and f32, s8 and s8, u8 and s8, found f32 and u8"),
        ((_P, array("f", [0] * 12)), {}, r"b of 2 dim.*\[12\]; make it .*'f', \[rows,"),
        ((_P, 1), {}, "b: expected an array, found int"),
        ((_P, _Q, 0), {}, "1 to 256 threads, found 0"),
        ((_P, _Q), {"bias": array("f", [0] * 3)}, r"bias: expected f32 \[4\], found f32 \[3\]"),
        ((_P, _Q), {"out": _Q}, r"out: expected f32 \[2, 4\], found f32 \[3, 4\]"),
        ((_P, _Q), {"out": plain(_F).toreadonly()}, "found a read-only one"),
    ],
)
def test_buffers_that_do_not_fit_are_named(arguments, options, message):
    with pytest.raises(InputError, match=message):
        gemm(*arguments, **options)


def test_out_apart_from_the_operands():
    whole = memoryview(bytearray(4 * 8))
    a, out = (whole[at : at + 16].cast("f", [2, 2]) for at in (0, 8))
    with pytest.raises(InputError, match="found shared memory"):
        gemm(a, plain(np.eye(2, dtype=np.float32)), out=out)
    twice = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (2, 4), (0, 4))
    with pytest.raises(InputError, match="memory for each element"):
        gemm(_F, _G, out=twice)


def test_an_explanation_names_the_row_or_the_rule():
    a, b = np.ones((128, 128), np.float32), np.ones((128, 128), np.float32)
    found, why = gemm(a, b, explain=True)
    assert found[0, 0] == 128
    library = GemmLibrary(*find_library())
    method, rule = library.lookup("f32", 128, 128, 128)
    assert (why.method, why.rule) == (method, rule)
    assert "128 x 128" in why.reason or why.row is None or "no method that applies" in why.reason
    wide, narrow = np.ones((500, 1600), np.int8), np.ones((1600, 30), np.int8)
    _, why = gemm(wide, narrow, 2, explain=True)
    pinned = why.rule == "analytic" and why.row is not None
    assert pinned == why.reason.endswith("is the nearest, and has no method that applies here")
    without = GemmLibrary(find_library()[0])
    assert without.row_shape("f32", 128, 128, 128) is None


def test_a_library_that_is_not_there_is_named(tmp_path):
    code = _ERROR.format(before="", arguments=_ZEROS)
    found = _python(code, EDGEKIT_KERNELS=str(tmp_path / "none.so"))
    assert "none.so: expected a library, found no file" in found


def test_without_a_compiler_one_line_says_so(tmp_path):
    before = "sys.executable = '/bin/false'"
    code = _ERROR.format(before=before, arguments=_ZEROS)
    found = _python(code, EDGEKIT_HOME=str(tmp_path))
    assert "expected to build the GEMM library" in found and "EDGEKIT_KERNELS" in found


def test_a_forked_process_starts_its_own_threads():
    code = """
import os
import numpy as np
from edgekit.device import gemm
a = np.ones((200, 200), np.float32)
gemm(a, a, 2)
child = os.fork()
if child == 0:
    os._exit(0 if (gemm(a, a, 2) == 200).all() else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    import os

    assert _python(code, **{k: v for k, v in os.environ.items() if k.startswith("EDGEKIT")}) == "0"
