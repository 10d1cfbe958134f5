"""The lookup and the analytic rule give the same answers in C and in Python."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edgekit.device.runtime.arrays.gemm_library import GemmLibrary, GemmMethod
from edgekit.device.runtime.arrays.sparse_library import SparseLibrary
from edgekit.device.runtime.arrays.sparse_table import SpmvTable
from edgekit.device.runtime.errors import IncompatibleError, InputError
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.costs.methods.gemm import Method, analytic_method
from edgekit.host.compiler.tables.gemm_table import FEATURES, GemmRow, KnowledgeBase
from edgekit.host.compiler.toolchain.gemm_blob import table_blob
from edgekit.host.compiler.toolchain.kernels import default_unit, kernel_units
from edgekit.host.compiler.toolchain.zig import Toolchain
from edgekit.kb.features import DEFAULT_SHAPE_SEQUENCE, GemmKey, GemmShape, Sequences
from edgekit.kb.targets.board import BoardProfile, board_names, load_board, load_profile
from tests.support.places import few_or_all

_CORE = load_board("local").platform
_DTYPES = st.sampled_from(["f32", "s8", "u8"])
_THREADS = st.integers(1, 4)
_PACKED = st.sampled_from(["none", "a", "b"])
_SIZE = st.one_of(st.integers(0, 40), st.integers(0, 5000), st.integers(0, 2**31 - 1))
_SHAPES = st.builds(GemmShape, _SIZE, _SIZE, _SIZE)
_QUESTIONS = st.tuples(_SHAPES, _DTYPES, _THREADS, _PACKED)
_SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=150)


@pytest.fixture(scope="module")
def library_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[BoardProfile], Path]:
    """This machine's library, with another board's default method."""
    here = load_board("local")
    folder = tmp_path_factory.mktemp("kernels")
    toolchain = Toolchain(here, cache_folder() / "objects")

    @functools.cache  # a file that a process has loaded must not change
    def build(board: BoardProfile) -> Path:
        units = [u for u in kernel_units(here) if u.name != "default"]
        path = folder / f"{board.name}.so"
        path.write_bytes(toolchain.build([*units, default_unit(board)]))
        return path

    return build


@pytest.fixture(scope="module")
def here(library_file: Callable[[BoardProfile], Path]) -> Path:
    return library_file(load_board("local"))


def side(packed: str) -> str | None:
    return None if packed == "none" else packed


def in_python(how: GemmMethod) -> Method:
    split = "n" if how.split == "n" else "m"
    packs = how.pack_a, how.pack_b
    return Method(how.mc, how.kc, how.nc, *packs, how.mr, how.nr, split=split)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    few_or_all(
        [*board_names(), "x86-64-v4", "x86-64-v4-amx"],
        ["local", "a7", "rpi3", "rpi4", "rpi5", "bpi-f3", "visionfive2", "x86-64-v4-amx"],
    ),
)
def test_the_default_is_the_same_on_every_board(name, library_file):
    board = load_board(name) if name == "local" else load_profile(name)
    library = GemmLibrary(library_file(board))
    dtypes = _DTYPES | st.just("f16") if board.computes_half else _DTYPES

    @settings(_SLOW, max_examples=150 if "EDGEKIT_TEST_ALL" in os.environ else 40)
    @given(_SHAPES, dtypes, _THREADS, _PACKED)
    @example(GemmShape(319, 19, 632), "f32", 1, "b")  # the tile of cores in order
    @example(GemmShape(34, 7, 3), "s8", 1, "a")  # one vector of columns: the cost of grouping it
    @example(GemmShape(12, 128, 200), "f32", 2, "none")  # both operands are packed
    def same(shape, dtype, threads, packed):
        packed = "none" if dtype == "f16" else packed
        found = library.default(dtype, shape.m, shape.n, shape.k, threads, side(packed))
        assert in_python(found) == analytic_method(board, shape, dtype, threads, packed)

    same()


def _sequence(draw: st.DrawFn) -> tuple[int, ...]:
    if draw(st.booleans()):
        return DEFAULT_SHAPE_SEQUENCE
    return tuple(sorted(draw(st.sets(st.integers(0, 3000), min_size=1, max_size=12))))


@st.composite
def tables(draw: st.DrawFn) -> KnowledgeBase:
    """Small tables for two platforms, whose rows often share features and shapes."""
    tie = draw(st.sampled_from(["low", "high"]))
    sequences = Sequences(*(_sequence(draw) for _ in range(4)), tie=tie)
    lengths = {name: len(getattr(sequences, name)) for name in FEATURES}
    rows: dict[GemmKey, GemmRow] = {}
    for _ in range(draw(st.integers(0, 25))):
        places = {name: draw(st.integers(0, length - 1)) for name, length in lengths.items()}
        key = GemmKey(
            platform=draw(st.integers(0, 1)),
            **places,
            dtype=draw(_DTYPES),
            threads=draw(st.integers(1, 2)),
            packed=draw(_PACKED),
        )
        shape = draw(st.sampled_from([GemmShape(8, 8, 8), GemmShape(9, 7, 8)]) | _SHAPES)
        rate = draw(st.sampled_from([None, 1.0, 2.5]))
        mc = draw(st.integers(1, 2**31 - 1))
        tile = draw(st.sampled_from([(5, 6), (16, 5), (5, 16), (64, 1), (1, 64)]))
        method = Method(mc, 3, 4, draw(st.booleans()), draw(st.booleans()), *tile, split="n")
        kept = None if draw(st.integers(0, 3)) == 0 else method
        relaxes = draw(st.booleans())
        radius = draw(st.sampled_from([None, 1, 30, 500]))
        rows[key] = GemmRow(key, kept, shape, "tuner", 1, 0.5, rate, relaxes, "", radius)
    priority = tuple(draw(st.permutations(FEATURES)))
    return KnowledgeBase(("first", _CORE), sequences, priority, tuple(rows.values()))


@given(tables(), st.lists(_QUESTIONS, min_size=1, max_size=12))
@example(KnowledgeBase((_CORE,)), [(GemmShape(181, 0, 725), "f32", 2, "none")])
@pytest.mark.slow
@_SLOW
def test_the_table_in_c_answers_as_the_one_in_python(here, tmp_path_factory, table, questions):
    file = tmp_path_factory.mktemp("table") / "second.table"
    file.write_bytes(table_blob(table, _CORE))
    library = GemmLibrary(here, file)
    board = load_board("local")
    vl = board.isa.vl
    for shape, dtype, threads, packed in questions * 2:  # the second pass hits the cache
        default = analytic_method(board, shape, dtype, threads, packed)
        wanted = table.lookup(_CORE, shape, default, dtype, threads, packed, vl)
        how, rule = library.lookup(dtype, shape.m, shape.n, shape.k, threads, side(packed))
        assert (in_python(how), rule) == (wanted.method, wanted.rule)
        if wanted.row and packed == "none":
            row = library.row_shape(dtype, shape.m, shape.n, shape.k, threads)
            assert row == astuple(wanted.row.shape)
    library.close()


def test_more_questions_than_are_kept(here, tmp_path):
    shape = GemmShape(500, 1600, 30)
    key = GemmKey(platform=0, m=2, k=4, n=0, scale=1)
    usual = analytic_method(load_board("local"), GemmShape(20, 11, 7))
    tile = (usual.mr, usual.nr)  # one that is transposed where this one is not does not relax
    row = GemmRow(key, Method(256, 128, 128, False, False, *tile), shape, "tuner")
    table = KnowledgeBase((_CORE,), rows=(row,))
    file = tmp_path / "only.table"
    file.write_bytes(table_blob(table, _CORE))
    library = GemmLibrary(here, file)
    for m in range(5000):
        _, rule = library.lookup("f32", m, 7, 11)
        assert rule == ("relaxed:m" if 20 <= m <= 54 else rule)
    assert library.lookup("f32", 500, 30, 1600) == (
        GemmMethod(256, 128, 128, False, False, *tile),
        "exact",
    )
    assert math.isfinite(library.lookup_nanoseconds("f32", [(500, 30, 1600)], 10))


def test_the_same_table_gives_the_same_bytes_whatever_the_order_of_its_rows():
    rows = [
        GemmRow(
            GemmKey(0, m, 1, 1, 0), Method(8, 8, 8, False, True, 8, 8), GemmShape(m, 8, 8), "tuner"
        )
        for m in range(5)
    ]
    blobs = {
        table_blob(KnowledgeBase(("p",), rows=tuple(order)), "p") for order in (rows, rows[::-1])
    }
    assert len(blobs) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"",
        lambda b: b[:-1],
        lambda b: b + b"\0",
        lambda b: b"X" + b[1:],
        lambda b: b[:8] + b"\xff" * 4 + b[12:],  # row count out of bounds
        lambda b: b[:32] + bytes(4) + b[36:],  # a priority with the same feature four times
        lambda b: b[:104] + b[112:120] + b[104:112] + b[120:],  # a non-increasing sequence
        lambda b: b[:40] + b"x" * 64 + b[104:],  # a core's name without an end
        lambda b: b[:-88] + b"\x7f" * 88,  # a garbage row
    ],
)
def test_a_damaged_table_is_refused(here, tmp_path, damage):
    shape = GemmShape(500, 1600, 30)
    key = GemmKey(platform=0, m=2, k=4, n=0, scale=1)
    row = GemmRow(key, Method(256, 128, 128, False, False, 8, 4), shape, "tuner")
    file = tmp_path / "bad.table"
    file.write_bytes(damage(table_blob(KnowledgeBase((_CORE,), rows=(row,)), _CORE)))
    with pytest.raises(InputError, match=r"bad\.table: expected the GEMM table"):
        GemmLibrary(here, file)


def test_a_table_of_another_core_is_refused(here, tmp_path):
    for name in ("a57.table", "a57.spmv"):
        file = tmp_path / name
        file.write_bytes(table_blob(KnowledgeBase(("cortex-a57",)), "cortex-a57"))
        if name.endswith("spmv"):
            file.write_text(SpmvTable("cortex-a57").text())
        opened = SparseLibrary if name.endswith("spmv") else GemmLibrary
        said = f"^{name}: expected a table of {_CORE}, found one of cortex-a57; "
        with pytest.raises(IncompatibleError, match=said):
            opened(here, file)


@given(st.binary(max_size=300), st.integers(0, 400))
@_SLOW
def test_random_bytes_in_a_table_never_crash(here, tmp_path_factory, noise, at):
    table = KnowledgeBase((_CORE,), rows=_some_rows())
    blob = bytearray(table_blob(table, _CORE))
    blob[at : at + len(noise)] = noise[: max(len(blob) - at, 0)]
    file = tmp_path_factory.mktemp("noise") / "noise.table"
    file.write_bytes(bytes(blob))
    try:
        library = GemmLibrary(here, file)
    except (InputError, IncompatibleError):
        return
    for size in (0, 1, 500, 2**31 - 1):
        library.lookup("f32", size, 3, 7)
    library.close()


def _some_rows() -> tuple[GemmRow, ...]:
    how = Method(8, 8, 8, False, True, 8, 8)
    return tuple(
        GemmRow(GemmKey(0, m, 1, 1, 0), how, GemmShape(m, 8, 8), "tuner") for m in range(3)
    )
