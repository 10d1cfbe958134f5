"""The analytic default method: it fits the caches and the product in all cases."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.host.compiler.costs.methods.gemm import Method, analytic_method
from edgekit.host.compiler.costs.methods.limits import limits_of
from edgekit.host.compiler.costs.methods.tile_cost import in_order_tile
from edgekit.kb.features import GemmShape, Packed
from edgekit.kb.targets.board import BoardProfile, board_names, caches_of, load_board, load_profile
from edgekit.kb.targets.isa import BYTES

_SIZES = st.one_of(st.integers(0, 70), st.integers(0, 5000), st.just(2**62))
_SHAPES = st.builds(GemmShape, _SIZES, _SIZES, _SIZES)


@given(
    _SHAPES, st.sampled_from(board_names()), st.sampled_from(["f32", "s8", "u8"]), st.integers(1, 8)
)
def test_the_default_fits_the_caches_and_the_product(shape, name, dtype, threads):
    board = load_board(name)
    found = analytic_method(board, shape, dtype, threads)
    caches, size = caches_of(board), BYTES[dtype]
    assert found.mc <= max(shape.m, 1) + found.mr and found.kc <= max(shape.k, 1) + 15
    if shape.m <= 1 or shape.n <= 1:
        assert 1 in (found.mr, found.nr)
        return
    assert found.kc * min(found.mr, found.nr) * size <= caches.l2
    assert found.mc * found.kc * size <= caches.l2
    assert found.nc * found.kc * size <= caches.l3


@pytest.mark.parametrize("name", board_names())
@pytest.mark.parametrize("dtype", ["f32", "s8"])
def test_the_default_tile_is_one_of_the_board(name, dtype):
    board = load_board(name)
    vl = board.isa.vl
    columns = [(height, nv * vl) for nv, height in enumerate(board.isa.columns.of(dtype), 1)]
    known = {*columns, in_order_tile(board, dtype)}
    known |= {(nr, mr - (mr % vl == 0)) for mr, nr in columns}
    for m in (2, 7, 96, 1000):
        for n in (2, 16, 33, 576):
            found = analytic_method(board, GemmShape(m, 64, n), dtype)
            assert (found.mr, found.nr) in known


def test_vectors_have_methods_of_their_own():
    board = load_board("a57")
    column = analytic_method(board, GemmShape(1000, 1024, 1))
    row = analytic_method(board, GemmShape(1, 1024, 1000), threads=4)
    assert (column.mr, column.nr, column.split) == (32, 1, "m")
    assert (row.mr, row.nr, row.split, row.kc) == (1, 32, "n", 1024)


def test_the_least_cost_chooses_the_tile():
    board = load_profile("x86-64-v4")
    few = GemmShape(96, 576, 25)  # two vectors of 16 hold 25 columns, six hold 96 rows
    transposed = analytic_method(board, few, packed="a")
    assert transposed.mr % 16 == 0 and transposed.nr % 16
    assert analytic_method(board, GemmShape(500, 500, 480)).nr % 16 == 0


@pytest.mark.parametrize("dtype", ["f32", "s8"])
def test_whole_vectors_of_columns_are_not_worth_turning(dtype: str):
    """Measured on a Zen 4: transposed tiles took 1.1 to 2.2 times as long."""
    board = load_profile("x86-64-v4")
    for shape in (GemmShape(1000, 10, 16), GemmShape(480, 32, 16), GemmShape(1000, 64, 16)):
        assert not analytic_method(board, shape, dtype, packed="a").is_transposed(16)


def test_panels_of_bytes_are_of_whole_cache_lines_where_few_rows_share_them():
    """Measured on a Zen 4: 8 x 48 took 1.25 and 1.5 times as long as 6 x 64."""
    board = load_profile("x86-64-v4")
    for shape in (GemmShape(8, 2800, 1024), GemmShape(8, 432, 4096)):
        assert analytic_method(board, shape, "s8", packed="a").nr % 64 == 0


def test_panels_are_wide_where_rows_of_c_are_pages_apart():
    """Measured on a Zen 4: narrower panels are slower, 4 x 96 by a factor of 1.3 and 8 x 48 by
    1.7."""
    board = load_profile("x86-64-v4")
    assert analytic_method(board, GemmShape(192, 8, 1024), "s8", packed="a").nr > 96


def test_a_tile_that_spills_is_not_for_few_k():
    """Measured on a Zen 4: 3 x 128 took 1.23 and 1.16 times as long as the best."""
    board = load_profile("x86-64-v4")
    for shape in (GemmShape(80, 3, 1600), GemmShape(480, 8, 6400)):
        assert analytic_method(board, shape, "s8", packed="a").nr < 128


def test_few_columns_are_worth_packing_a():
    """Measured on a Zen 4: normal tiles took 1.5 to 2.1 times as long."""
    board = load_profile("x86-64-v4")
    for shape in (GemmShape(1550, 5, 2), GemmShape(2048, 64, 2), GemmShape(32, 128, 4)):
        assert analytic_method(board, shape, packed="b").nr < 16


@pytest.mark.parametrize(("dtype", "k"), [("f32", 1024), ("f32", 4096), ("s8", 4096)])
def test_rows_a_page_apart_do_not_share_a_set_of_l1(dtype: str, k: int):
    """Measured on a Zen 4: a tile of 24 rows took 3.8 times as long as one of 4 to 9."""
    board = load_profile("x86-64-v4")
    apart = analytic_method(board, GemmShape(96, k, 12), dtype, packed="b")
    assert apart.is_transposed(16) or apart.mr <= 9
    assert analytic_method(board, GemmShape(96, k + 16, 12), dtype, packed="b").mr > 9


def test_long_vectors_cut_k_for_l2_only():
    board, avx2 = load_profile("x86-64-v4"), load_profile("x86-64-v3")
    shape = GemmShape(2304, 1152, 48)
    assert analytic_method(board, shape, packed="b").kc == 1152
    assert analytic_method(avx2, shape, packed="b").kc < 1152
    deep = analytic_method(board, GemmShape(2304, 100_000, 48), packed="b")
    assert deep.kc * deep.nr * 4 <= 1048576 // 2


def test_panels_of_rows_apart_are_copied_one_at_a_time_by_enough_rows():
    board, zen = load_profile("x86-64-v4-amx"), load_profile("x86-64-v4")
    copied = analytic_method(board, GemmShape(64, 600, 1024), packed="a")
    assert copied.pack_b and copied.nc == copied.nr and copied.kc <= 256
    few = analytic_method(board, GemmShape(8, 1008, 4096), packed="a")
    assert not few.pack_b and few.kc <= 256
    assert analytic_method(board, GemmShape(64, 600, 1024), packed="b").kc == 600
    assert not analytic_method(board, GemmShape(64, 16, 1024)).pack_b  # C dominates
    two = analytic_method(board, GemmShape(64, 600, 4096), threads=2, packed="a")
    assert two.split == "n" and two.nc > two.nr
    assert not analytic_method(zen, GemmShape(64, 600, 1024), packed="a").pack_b


def test_amx_packs_strips_of_large_bytes_that_stay_near():
    board = load_profile("x86-64-v4-amx")
    l2 = caches_of(board).l2

    def strip(m: int, k: int, n: int, threads: int = 1, packed: Packed = "a") -> int:
        return analytic_method(board, GemmShape(m, k, n), "s8", threads, packed).nc

    assert strip(16, 480, 6400) * 480 <= l2 // 16 + 64 * 480
    assert strip(16, 4000, 784) == 128  # two cache lines, however deep
    assert strip(16, 27, 12544) >= 12544  # already small enough
    assert strip(16, 480, 6400, threads=2) > 1024  # threads share their wait for memory
    assert strip(16, 480, 6400, packed="b") > 1024
    zen = load_profile("x86-64-v4")
    assert analytic_method(zen, GemmShape(16, 480, 6400), "s8", packed="a").nc > 1024


def test_threads_share_rows_of_floats_and_columns_of_bytes_where_there_are_enough():
    """Measured on a Zen 4: splitting by columns took 4.2 times as long on f32 128 x 3 x 6400;
    splitting by rows took 1.8 times as long on f32 8 x 80 x 3136 and 1.6 times on s8 40 x 1728 x
    256."""
    board = load_profile("x86-64-v4")

    def split(m: int, k: int, n: int, dtype: str, threads: int = 2) -> str:
        return analytic_method(board, GemmShape(m, k, n), dtype, threads, "a").split

    assert split(128, 3, 6400, "f32") == "m" and split(8, 80, 3136, "f32") == "n"
    assert split(40, 1728, 256, "s8") == "n" and split(512, 100, 16, "s8") == "m"
    assert split(1024, 1280, 8, "s8") == "m"  # a transposed tile
    assert split(40, 1728, 256, "s8", threads=1) == "m"


def test_every_thread_gets_a_tile():
    """Measured on a Zen 4, two threads: a single tile took 1.8 times as long on f32 8 x 2160 x
    16."""
    found = analytic_method(load_profile("x86-64-v4"), GemmShape(8, 2160, 16), "f32", 2, "a")
    assert found.mr < 8 or found.nr < 16


def test_blocks_are_not_cut_for_threads():
    """Threads share the panels of a block, and each extra block adds two barriers: on a Zen 4,
    splitting s8 96 x 32 x 784 took 1.8 times as long as one thread."""
    board = load_profile("x86-64-v4")
    found = analytic_method(board, GemmShape(96, 32, 784), "s8", threads=2, packed="a")
    assert found.nc >= 784


def test_amx_turns_bytes_of_few_columns_and_floats_of_more():
    board, zen = load_profile("x86-64-v4-amx"), load_profile("x86-64-v4")

    def transposed(profile: BoardProfile, shape: GemmShape, dtype: str) -> bool:
        return analytic_method(profile, shape, dtype, packed="a").nr % 16 != 0

    # Regression: for a single vector of B, skipping packing was chosen, 14 times as slow as
    # transposing.
    assert transposed(board, GemmShape(10, 2048, 2), "s8")
    assert transposed(board, GemmShape(12, 2048, 4), "s8")
    assert not transposed(board, GemmShape(16, 2048, 16), "s8")
    assert transposed(board, GemmShape(256, 576, 100), "f32")
    assert not transposed(zen, GemmShape(256, 576, 100), "f32")


def test_floats_in_rows_apart_are_as_deep_as_an_intel_follows():
    board = load_profile("x86-64-v4-amx")

    def method(m: int, k: int, n: int) -> Method:
        return analytic_method(board, GemmShape(m, k, n), packed="a")

    few, several, many = method(8, 864, 6400), method(40, 1008, 400), method(128, 1152, 784)
    assert (few.kc, few.pack_b) == (32, False)
    assert several.kc <= 128 and not several.pack_b
    assert many.pack_b and many.kc * many.nr * 4 <= caches_of(board).l1 * 3 // 4
    assert method(24, 256, 400).kc == 256  # close enough to read at full depth
    assert not method(64, 288, 6400).pack_b and method(64, 288, 9216).pack_b  # rows are pages apart


@pytest.mark.parametrize("name", ["x86-64-v4-amx", "x86-64-v4"])
def test_thin_floats_take_as_wide_a_panel_as_stays_in_registers(name):
    board = load_profile(name)
    assert analytic_method(board, GemmShape(25, 3, 112), packed="b").nr == 112
    assert analytic_method(board, GemmShape(25, 4, 112), packed="b").nr < 112  # does not fit


@pytest.mark.parametrize(
    ("name", "shape", "depth", "packs"),
    [
        ("rpi4", GemmShape(32, 480, 49), 160, False),  # unaligned rows fill the lines of L1
        ("rk3566", GemmShape(48, 240, 64), 240, True),  # panels of its own tile
        ("rk3566", GemmShape(48, 480, 64), 480, True),  # which fill up to half of L1
        ("rpi3", GemmShape(48, 1200, 64), 400, True),
        ("rpi3", GemmShape(16, 432, 144), 224, True),  # L2 holds B and panels of half of it
        ("rpi3", GemmShape(16, 432, 196), 112, True),  # but not both beside rows of A and C
        ("rpi3", GemmShape(3, 300, 700), 112, True),  # a B beyond L2 is packed for any rows
        ("rpi4", GemmShape(4, 256, 1100), 256, False),  # or read in place where that is faster
        ("rpi4", GemmShape(8, 256, 1100), 256, True),
        ("rpi3", GemmShape(49, 512, 512), 512, True),  # also beyond L2, for many rows
        ("rpi3", GemmShape(12, 512, 512), 128, True),  # but short strips for few
        ("rk3566", GemmShape(14, 128, 256), 128, True),  # rows share sets: panels of its own tile
        ("rk3566", GemmShape(14, 240, 64), 64, False),  # 256 bytes apart: a quarter of its sets
        ("jetson-nano", GemmShape(64, 256, 256), 256, True),  # 1 KiB apart: too few sets
        ("rpi4", GemmShape(64, 1000, 16), 1000, False),  # a single panel is contiguous
        ("rpi4", GemmShape(240, 144, 49), 144, True),  # many passes over a B that L1 holds
        ("rpi5", GemmShape(240, 144, 49), 144, False),  # in half of a larger L1
        ("visionfive2", GemmShape(4, 1000, 32), 128, False),  # panels share lines
    ],
)
def test_floats_in_place_are_as_deep_as_l1_holds_their_lines(name, shape, depth, packs):
    found = analytic_method(load_board(name), shape)
    assert (found.kc, found.pack_b) == (depth, packs)


def test_a_few_rows_are_packed_where_cores_read_them_slowly_beside_a_large_b():
    cases = (("rk3566", 4, 64), ("rk3566", 5, 384), ("rk3566", 4, 20), ("rpi3", 4, 384))
    made = [analytic_method(load_board(name), GemmShape(m, 128, n)) for name, m, n in cases]
    assert [method.pack_a for method in made] == [True, False, False, False]


@pytest.mark.parametrize(
    ("m", "k", "n", "threads", "packs"),
    [
        (12, 128, 128, 1, "ab"),
        (12, 128, 128, 2, "ab"),
        (11, 128, 128, 1, "a"),
        (12, 128, 64, 1, "a"),  # B is as large as L1
        (12, 128, 60, 1, ""),
        (95, 128, 100, 1, "a"),  # few rows of B share sets of L1
        (96, 128, 100, 1, "ab"),
    ],
)
def test_a_scalar_core_packs_operands_beside_a_large_b(m, k, n, threads, packs):
    made = analytic_method(load_board("visionfive2"), GemmShape(m, k, n), threads=threads)
    assert "a" * made.pack_a + "b" * made.pack_b == packs
    assert (made.mr, made.nr) == ((6, 2) if made.pack_b else (4, 4))
    assert made.split == ("n" if threads > 1 else "m")


@pytest.mark.parametrize("name", ["rk3566", "rpi5"])
def test_halves_of_few_k_are_stored_in_wide_tiles(name):
    made = [analytic_method(load_board(name), GemmShape(16, k, 64), "f16") for k in (3, 300)]
    assert [how.nr for how in made] == [32, 16]


def test_a_method_is_cut_to_a_product():
    method = Method(512, 256, 4096, False, True, 8, 12)
    cut = method.cut(GemmShape(20, 30, 40))
    assert (cut.mc, cut.kc, cut.nc) == (24, 30, 48)
    assert cut == cut.cut(GemmShape(20, 30, 40)) and cut.pack_b


@pytest.mark.parametrize("changes", [{"mc": 0}, {"nr": -1}, {"split": "k"}])
def test_a_method_that_cannot_be_is_refused(changes):
    with pytest.raises(ValueError, match="expected"):
        dataclasses.replace(Method(1, 1, 1, False, False, 1, 1), **changes)


def test_a_block_that_held_the_whole_product_is_no_limit_for_larger_ones():
    board = load_board("a57")
    shape = GemmShape(m=512, k=64, n=80)
    limits = limits_of(Method(128, 64, 80, False, False, 8, 12), shape, board, "f32")
    assert limits.mc == 128 and limits.kc > 64 and limits.nc > 80
    assert limits.kc * (8 + 12) * 4 <= caches_of(board).l1
    assert limits.cut(shape) == Method(128, 64, 84, False, False, 8, 12)
    vector = limits_of(Method(1, 64, 80, False, False, 1, 32), GemmShape(1, 64, 80), board, "f32")
    assert min(vector.kc, vector.nc) > 10**6


def test_a_block_that_was_good_beyond_the_caches_stays():
    board = load_board("a57")
    method = Method(8, 5000, 12, False, False, 8, 12)
    assert limits_of(method, GemmShape(8, 5000, 12), board, "f32").kc == 5000


def test_a_tile_as_high_as_the_product_is_as_high_as_its_code_on_larger_ones():
    board = load_profile("x86-64-v4")
    heights = board.isa.columns.f32
    low = limits_of(Method(2, 16, 16, False, False, 2, 16), GemmShape(2, 16, 9), board, "f32")
    assert (low.mr, low.nr) == (heights[0], 16)
    narrow = limits_of(Method(48, 16, 3, False, False, 48, 3), GemmShape(96, 16, 3), board, "f32")
    assert (narrow.mr, narrow.nr) == (48, heights[2])
    fixed = Method(6, 16, 64, False, False, 6, 64)
    assert limits_of(fixed, GemmShape(7, 16, 64), board, "f32").mr == 6
    own = Method(8, 64, 96, False, True, 8, 8)
    assert limits_of(own, GemmShape(8, 64, 96), load_board("rpi3"), "f32").mr == 8


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "tiles"),
    [  # estimated to be within 5% of the fastest; what the guessed costs chose lost 14 to 70%
        ("rpi4", GemmShape(24, 144, 196), "f32", {(12, 8)}),
        ("rpi4", GemmShape(12, 256, 25), "f32", {(24, 4), (8, 12)}),
        ("rpi3", GemmShape(100, 108, 64), "f32", {(8, 8)}),
        ("rpi3", GemmShape(128, 256, 20), "s8", {(4, 4)}),
        ("rk3566", GemmShape(128, 48, 128), "f32", {(8, 8)}),
        ("rpi5", GemmShape(1000, 3, 3), "f32", {(32, 3)}),
    ],
)
def test_the_cores_own_costs_choose_the_tile(name, shape, dtype, tiles):
    found = analytic_method(load_board(name), shape, dtype, packed="b")
    assert (found.mr, found.nr) in tiles


@pytest.mark.parametrize(
    ("name", "shape", "tiles"),
    [  # likewise, of operands in place; the tiles chosen before took 1.5 to 2.7 times as long
        ("rpi4", GemmShape(320, 1000, 2), {(8, 12), (5, 16)}),  # A exceeds L2: few rows at once
        ("rpi4", GemmShape(128, 1024, 2), {(8, 12)}),  # rows of A share cache sets
        ("rpi4", GemmShape(12, 1024, 4), {(5, 16), (12, 8), (8, 12)}),  # likewise
        ("rpi4", GemmShape(64, 1280, 4), {(8, 12), (5, 16)}),
        ("rpi5", GemmShape(8, 400, 25), {(12, 7), (8, 11), (16, 5)}),
        ("rpi5", GemmShape(12, 1024, 8), {(12, 8)}),  # packing rows that share cache sets
        ("jetson-nano", GemmShape(96, 576, 49), {(5, 16)}),
    ],
)
def test_operands_in_place_choose_the_tile_too(name, shape, tiles):
    found = analytic_method(load_board(name), shape)
    assert (found.mr, found.nr) in tiles


def test_a_tile_does_not_end_inside_cache_lines_that_l2_does_not_hold():
    found = analytic_method(load_board("rpi3"), GemmShape(320, 3, 576), "f32")
    assert found.nr % 16 == 0


def test_rows_of_b_that_share_cache_sets_are_packed():
    """In place, this product takes four times as long on an A53."""
    assert analytic_method(load_board("rpi3"), GemmShape(98, 512, 256), "f32").pack_b


@pytest.mark.parametrize(
    ("name", "shape", "threads", "taken"),
    [
        ("rpi3", GemmShape(16, 256, 1024), 1, True),
        ("rpi3", GemmShape(16, 256, 1024), 4, False),  # threads would wait for the one that packs
        ("rpi3", GemmShape(7, 384, 384), 1, True),  # beyond L2
        ("rpi3", GemmShape(7, 96, 384), 1, False),  # less than one row of tiles
        ("rpi3", GemmShape(8, 256, 256), 1, True),
        ("rpi3", GemmShape(64, 12, 49), 1, True),
        ("rpi3", GemmShape(500, 1600, 24), 1, True),
        ("rpi3", GemmShape(500, 1600, 7), 1, False),  # few columns
        ("rk3566", GemmShape(96, 576, 49), 1, True),  # rather than transposed
        ("rpi4", GemmShape(16, 256, 1024), 1, False),
    ],
)
def test_cores_in_order_have_a_tile_of_their_own(name, shape, threads, taken):
    found = analytic_method(load_board(name), shape, threads=threads)
    assert ((found.mr, found.nr, found.pack_b) == (8, 8, True)) == taken


@pytest.mark.parametrize(
    ("name", "shape", "threads", "blocks"),
    [
        ("rpi5", GemmShape(16, 256, 1024), 1, (128, 528)),  # beyond L2
        ("rpi5", GemmShape(8, 512, 1024), 1, (128, 528)),  # beyond L3
        ("rpi4", GemmShape(8, 512, 1024), 1, (128, 512)),
        ("rpi5", GemmShape(16, 256, 1000), 1, None),  # rows that share no cache sets
        ("rpi5", GemmShape(16, 128, 512), 1, None),  # in L2
        ("rpi5", GemmShape(4, 256, 1024), 1, None),  # a single row of tiles
        ("rpi5", GemmShape(16, 256, 1024), 2, None),
    ],
)
def test_rows_that_share_cache_sets_are_packed_in_wide_flat_strips(name, shape, threads, blocks):
    found = analytic_method(load_board(name), shape, threads=threads)
    assert ((found.kc, found.nc) if found.pack_b else None) == blocks
