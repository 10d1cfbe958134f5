"""Every kernel under AddressSanitizer and UndefinedBehaviorSanitizer, with odd sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.host.compiler.codegen.emit import describe
from edgekit.host.compiler.driver import units_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.lowering.gemm.epilogues import fuse_additions, fuse_epilogues
from edgekit.host.compiler.lowering.lower import NO_UNITS, lower
from edgekit.host.compiler.lowering.nna.units import NNA
from edgekit.kb.targets.board import load_board
from edgekit.kb.targets.isa import LANE_REGISTERS, Columns
from tests.support import half_cases, nna_cases
from tests.support.few_bytes import few_bytes_graph
from tests.support.gemm_cases import (
    DTYPES,
    encoded,
    output_bytes,
    random_product,
    units,
    weights_by_few,
)
from tests.support.gemm_cases import check as check_products
from tests.support.half_graphs import HALF_FAMILIES, check_half, in_half
from tests.support.joined_graphs import bottleneck, residual_block
from tests.support.kernel_runs import VARIANTS, check
from tests.support.narrow_cases import narrow_cases
from tests.support.nna_graphs import layers, products
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import FAMILIES, graph_of, inputs_of, random_graph
from tests.support.sanitized import (
    BOARDS,
    build_driver,
    build_library,
    run,
    run_cases,
    usable,
    with_isa,
)

pytestmark = pytest.mark.sanitizers
# These families cover most primitives of the vector headers.
_VECTORS = re.compile("softmax|unary|binary|quantized_function|transpose$|resize")

# Other operators of kernels that these families, or products_stay_in_bounds, call as well.
_VARIANTS = re.compile(
    f"{VARIANTS}|channels_first_depthwise_in_place|loop|outlier_layer|recurrent_8bit"
)


def _runs() -> Iterator[Any]:
    """Most families in plain C, some on the widest vectors; the others are exhaustive."""
    for family in FAMILIES:
        marks = pytest.mark.exhaustive if _VARIANTS.match(family) else ()
        yield pytest.param(family, "scalar", marks=marks)
        for simd in ("sse2", "avx2", "avx512vnni"):
            own = simd == "avx512vnni" and _VECTORS.match(family)
            yield pytest.param(family, simd, marks=() if own else pytest.mark.exhaustive)


_HALF_RUNS = [
    pytest.param(family, marks=() if _VECTORS.match(family) else pytest.mark.exhaustive)
    for family in HALF_FAMILIES
]
_ARM = Path(nna_cases.__file__).with_name("arm_products.h")
_AMX = pytest.mark.skipif("avx512amx" not in BOARDS, reason="this machine has no AMX")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("sanitized") / "driver")


@pytest.mark.parametrize(("family", "simd"), list(_runs()))
def test_kernels_stay_in_bounds(family, simd, driver, tmp_path):
    simd = usable(simd)
    graph = random_graph(family, 10, seed=len(family) + 2)
    inputs = inputs_of(graph)
    check(graph, _outputs(graph, inputs, BOARDS[simd], simd, driver, tmp_path), inputs)


def test_stems_of_padded_lines_stay_in_bounds(driver, tmp_path):
    """Their kernel is chosen on 64-bit ARM only, but compiles for all vectors."""
    simd = usable("avx2")
    board = with_isa(BOARDS[simd], lanes=True, registers=LANE_REGISTERS)
    graph = random_graph("image_stem", 10, seed=4)
    kernels = {call.kernel for step in lower(graph, board).lowered.steps for call in step.calls}
    assert sum("CHW_LINES" in dict(kernel.macros) for kernel in kernels) >= 3
    inputs = inputs_of(graph)
    check(graph, _outputs(graph, inputs, board, simd, driver, tmp_path), inputs)


def test_narrow_weights_stay_in_bounds(driver, tmp_path):
    simd = usable("sse2")
    graph = graph_of(narrow_cases("s8"))
    inputs = inputs_of(graph)
    check(graph, _outputs(graph, inputs, BOARDS[simd], simd, driver, tmp_path), inputs)


_FEW_BITS = (  # bits, group, columns
    *((2, 32, 33), (2, 64, 70), (2, 512, 17), (4, 32, 70), (4, 128, 33)),
    *((3, 32, 33), (3, 64, 70), (3, 64, 25), (3, 128, 8), (3, 256, 12), (3, 192, 17)),
)


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("vectors", ["neondot", "neon", "neon32", "rvv256"])
def test_weights_of_two_to_four_bits_stay_in_bounds(vectors, rows, driver, tmp_path):
    """ARM's and RISC-V's kernels on x86: vectors split, ARM's products as plain C."""
    simd, rng, cases = usable("avx2"), np.random.default_rng(rows), []
    board = replace(BOARDS[simd], simd=vectors)
    for bits, group, n in _FEW_BITS:
        most, k = 1 << bits - 1, 2 * max(group, 64)
        weights = constant(rng.integers(-most, most, (n, k)), DType.I8)
        scale = constant(rng.uniform(1, 2, (k // group, n)).astype(np.float16))
        cases.append(Case(ops.OutlierFullyConnected(0.9), (tensor((rows, k)), weights, scale)))
    graph = graph_of(cases)
    plan, inputs = lower(graph, board), inputs_of(graph)
    symbols = {call.kernel.symbol for step in plan.lowered.steps for call in step.calls}
    for bits in (2, 3, 4):
        assert any(f"int{bits}" in each for each in symbols)
    units = [_in_plain_c(unit, board.isa.i8.value) for unit in units_of(plan, board)]
    check(graph, _outputs_of(graph, inputs, plan, units, simd, driver, tmp_path), inputs)


def test_strips_of_pixels_stay_in_bounds(driver, tmp_path):
    """Kernels for cores out of order without dot products, on x86."""
    simd, graph = usable("avx2"), few_bytes_graph()
    board = replace(BOARDS[simd], simd="neon")
    plan, inputs = lower(graph, board), inputs_of(graph)
    units = [_in_plain_c(unit, board.isa.i8.value) for unit in units_of(plan, board)]
    assert any("STEPS" in dict(unit.macros) for unit in units)
    check(graph, _outputs_of(graph, inputs, plan, units, simd, driver, tmp_path), inputs)


def _in_plain_c(unit, product):
    """A unit for ARM with `arm_products.h` instead of its own vectors."""
    macros = dict(unit.macros)
    if "neon" in macros.get("EK_SIMD", ""):
        macros |= {"EK_SIMD": f'"{_ARM}"', "EK_I8": product}
    return replace(unit, macros=tuple(macros.items()))


@pytest.mark.parametrize("half", [5, 16])
@pytest.mark.parametrize("simd", ["scalar", "avx2"])
def test_slices_read_and_added_in_place_stay_in_bounds(simd, half, driver, tmp_path):
    simd, graph = usable(simd), fuse_additions(fuse_epilogues(bottleneck(half)))
    inputs = inputs_of(graph)
    check(graph, _outputs(graph, inputs, BOARDS[simd], simd, driver, tmp_path), inputs)


@pytest.mark.parametrize("half", [5, 40])
@pytest.mark.parametrize("simd", ["scalar", "avx2"])
def test_sums_made_in_their_place_stay_in_bounds(simd, half, driver, tmp_path):
    simd, graph = usable(simd), residual_block(half)
    inputs = inputs_of(graph)
    check(graph, _outputs(graph, inputs, BOARDS[simd], simd, driver, tmp_path), inputs)


@pytest.mark.parametrize("run", [2, 4])
def test_runs_of_bytes_are_copied_from_odd_places(run, driver, tmp_path):
    """They are as long as words, and were loaded as words."""
    extent = (6, run)
    taken = ops.StridedSlice(begin=(0, 1), stride=(1, 1), extent=extent, shape=extent)
    graph = graph_of([Case(taken, (tensor((6, 2 * run), DType.U8, quant(0.1)),))])
    simd, inputs = usable("sse2"), inputs_of(graph)
    check(graph, _outputs(graph, inputs, BOARDS[simd], simd, driver, tmp_path), inputs)


def test_transposes_of_bytes_stay_in_bounds(driver, tmp_path):
    q, shapes = quant(0.1), ((1, 3, 35), (2, 33, 3), (1, 5, 31), (3, 4, 20), (2, 19, 11))
    swapped = ops.Transpose((0, 2, 1))
    graph = graph_of([Case(swapped, (tensor(shape, DType.U8, q),), q) for shape in shapes])
    simd, inputs = usable("sse2"), inputs_of(graph)
    check(graph, _outputs(graph, inputs, BOARDS[simd], simd, driver, tmp_path), inputs)


@pytest.mark.parametrize("made", [layers, products], ids=lambda made: made.__name__)
@pytest.mark.parametrize(
    "simd",
    ["avx512vnni", *(pytest.param(s, marks=pytest.mark.exhaustive) for s in ("scalar", "avx2"))],
)
def test_operators_on_the_nna_stay_in_bounds(simd, made, driver, tmp_path):
    simd = usable(simd)
    board, graph = replace(BOARDS[simd], nna=load_board("nna1").nna), made(3)
    inputs, there = inputs_of(graph), {node.name: NNA for node in graph.nodes}
    check(graph, _outputs(graph, inputs, board, simd, driver, tmp_path, there), inputs)


@pytest.mark.parametrize("family", _HALF_RUNS)
def test_kernels_of_f16_stay_in_bounds(family, driver, tmp_path):
    """RVV's f16 kernels use no intrinsics, so they build on x86: vectors split, f16 as f32."""
    simd = usable("avx2")
    board = replace(BOARDS[simd], simd="rvv128")
    graph = in_half(random_graph(family, 10, seed=len(family) + 2))
    inputs = inputs_of(graph)
    check_half(graph, _outputs(graph, inputs, board, simd, driver, tmp_path), inputs)


def test_products_of_f16_stay_in_bounds(driver, tmp_path):
    simd = usable("avx2")
    board = replace(BOARDS[simd], simd="rvv128", extras=("zvfh",))
    products = half_cases.half_products(1)
    size, encoded = half_cases.output_bytes(products), half_cases.encoded(products)
    library = build_library(half_cases.units(board), simd, tmp_path)
    half_cases.check(products, run_cases(driver, library, encoded, size, threads=2))


def _outputs(graph, inputs, board, simd, driver, tmp_path, units=NO_UNITS):
    """Outputs of the kernels, built with the flags of `simd`."""
    plan = lower(graph, board, units=units)
    return _outputs_of(graph, inputs, plan, units_of(plan, board), simd, driver, tmp_path)


def _outputs_of(graph, inputs, plan, units, simd, driver, tmp_path):
    library = build_library(units, simd, tmp_path)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(plan.lowered.weights)
    about = json.loads(json.dumps(describe(plan)))
    given, made = tmp_path / "in.bin", tmp_path / "out.bin"
    given.write_bytes(b"".join(inputs[name].tobytes() for name in graph.inputs))
    types = [np.dtype((BY_NAME[t["dtype"]].npy, tuple(t["shape"]))) for t in about["outputs"]]
    run(
        *(str(p) for p in (driver, library, weights)),
        *(str(about[k]) for k in ("arena_bytes", "state_bytes")),
        *("1", "1", str(given), str(made), "2"),
        ",".join(str(inputs[name].nbytes) for name in graph.inputs),
        ",".join(str(t.itemsize) for t in types),
    )
    row = np.fromfile(made, np.dtype([(f"f{i}", t) for i, t in enumerate(types)]))[0]
    return {n: row[f"f{i}"] for i, n in enumerate(graph.outputs)}


@pytest.mark.parametrize(
    "simd",
    [
        "scalar",
        *(pytest.param(s, marks=pytest.mark.exhaustive) for s in ("sse2", "avx2", "avx512vnni")),
        pytest.param("avx512amx", marks=[_AMX, pytest.mark.exhaustive]),
    ],
)
def test_products_stay_in_bounds(simd, driver, tmp_path):
    simd = usable(simd)
    # Few rows per tile: tall AMX tiles take minutes to compile with sanitizers and test no more.
    few = Columns(f32=(8, 2), i8=(3, 2))
    if simd == "avx512amx":
        few = Columns(f32=(8, 2), i8=(32, 32, 16, 16), i8_vectors=3)
    board = with_isa(BOARDS[simd], columns=few)
    rng = np.random.default_rng(len(simd))
    products = [random_product(rng, dtype) for dtype in DTYPES for _ in range(200)]
    products += [each for dtype in DTYPES for each in weights_by_few(rng, dtype)]
    library = build_library(units(board), simd, tmp_path)
    made = run_cases(driver, library, encoded(products), output_bytes(products), threads=2)
    check_products(products, made)


@pytest.mark.parametrize(
    "simd",
    ["avx512vnni", *(pytest.param(s, marks=pytest.mark.exhaustive) for s in ("scalar", "avx2"))],
)
def test_the_nna_stays_in_bounds(simd, driver, tmp_path):
    simd = usable(simd)
    cases = nna_cases.random_cases()
    library = build_library(nna_cases.units(BOARDS[simd]), simd, tmp_path)
    size = nna_cases.output_bytes(cases)
    made = run_cases(driver, library, nna_cases.encoded(cases), size, threads=1)
    nna_cases.check(cases, made)
