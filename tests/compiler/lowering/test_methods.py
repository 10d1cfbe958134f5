"""The knowledge base decides a product's tile, and the plan states the rule that applied."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.costs.methods.operators import Form, OperatorMethod, candidates_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Padding
from edgekit.host.compiler.lowering.choice import choose
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.plan import KernelCall
from edgekit.host.compiler.tables.gemm_file import load_table, table_text
from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase
from edgekit.host.lab.tune.build import build_table
from edgekit.kb.features import GemmShape, Sequences, key_of
from edgekit.kb.targets.board import BoardProfile, load_board, load_profile
from edgekit.kb.targets.isa import isa_of
from tests.support.kernel_runs import build, check, run_here, x86_boards
from tests.support.method_cases import every_method, form_of_points, table_of_operators
from tests.support.op_graphs import Case, constant, graph_of, inputs_of, tensor
from tests.support.places import few_or_all

_A57 = load_profile("a57")
_SHAPE = GemmShape(30, 16, 24)


def _convolution(shape: GemmShape) -> Case:
    weights = np.linspace(-1, 1, shape.n * shape.k, dtype=np.float32)
    return Case(
        ops.Conv2D(),
        (tensor((1, 1, shape.m, shape.k)), constant(weights.reshape(shape.n, 1, 1, shape.k)), None),
    )


def _table(board: BoardProfile, method: Method) -> KnowledgeBase:
    key = key_of(_SHAPE, 0, Sequences(), packed="b")
    return KnowledgeBase((board.platform,)).with_rows([GemmRow(key, method, _SHAPE, "tuner")])


def _method(mr: int, nr: int) -> Method:
    return Method(mr, 16, nr, pack_a=False, pack_b=True, mr=mr, nr=nr)


@pytest.mark.parametrize(("mr", "nr"), [(8, 8), (6, 12)])
def test_tile_of_an_exact_row_is_taken(mr, nr):
    table = _table(_A57, _method(mr, nr))
    (step,) = lower(graph_of([_convolution(_SHAPE)]), _A57, table).lowered.steps
    assert step.kernel == f"ek_f32_conv_{mr}x{nr}_neon"
    made = step.compiled
    assert made is not None and (made.choice.rule, made.method.mr, made.method.nr) == (
        "exact", mr, nr,
    )  # fmt: skip
    assert made.choice.row is not None and made.choice.row.shape == _SHAPE


def test_a_kernel_of_one_pixel_leaves_the_method_of_its_tile():
    graph = graph_of([_convolution(GemmShape(1, 16, 24))])
    (step,) = lower(graph, _A57, KnowledgeBase((_A57.platform,))).lowered.steps
    method = step.compiled.method
    assert (step.kernel, method.mr > 1) == (f"ek_f32_conv_{method.mr}x{method.nr}_one_neon", True)


def test_tile_of_products_that_is_not_proven_for_convolutions_is_not_taken():
    table = _table(_A57, _method(5, 20))
    (step,) = lower(graph_of([_convolution(_SHAPE)]), _A57, table).lowered.steps
    assert step.kernel in ("ek_f32_conv_8x8_neon", "ek_f32_conv_6x12_neon")
    assert step.compiled is not None and step.compiled.choice.row is None
    assert step.compiled.choice.rule == "analytic"


def test_without_rows_the_caches_decide():
    empty = KnowledgeBase((_A57.platform,))
    (step,) = lower(graph_of([_convolution(_SHAPE)]), _A57, empty).lowered.steps
    assert step.compiled is not None and step.compiled.choice.rule == "analytic"


def test_operators_that_are_no_products_have_no_method():
    (step,) = lower(
        graph_of([Case(ops.Add(), (tensor((2, 3)), tensor((2, 3))))]), _A57
    ).lowered.steps
    assert step.compiled is None


@pytest.mark.parametrize("shape", [(1, 40, 33), (7, 40, 1), (1, 1, 1), (9, 3, 50)])
def test_vectors_and_thin_products_are_right(shape, tmp_path):
    case = _convolution(GemmShape(*shape))
    graph = graph_of([case])
    x = np.linspace(-1, 1, shape[0] * shape[1], dtype=np.float32).reshape(1, 1, *shape[:2])
    made = run_here(build(graph, load_board("local"), tmp_path), {"n0_in0": x})
    data = case.ins[1]
    assert data is not None and data.data is not None
    expected = x[0, 0] @ data.data.reshape(shape[2], shape[1]).T
    np.testing.assert_allclose(made["n0_out0"][0, 0], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("mr", "nr", "split"), [(4, 24, "m"), (5, 16, "m"), (24, 4, "n"), (3, 32, "n")]
)
def test_row_of_an_operator_gives_any_tile_and_walk(mr, nr, split):
    table = table_of_operators(
        _A57, (form_of_points(_SHAPE), OperatorMethod("in_place", "f32", mr, nr, split))
    )
    (step,) = lower(graph_of([_convolution(_SHAPE)]), _A57, table).lowered.steps
    assert step.kernel == f"ek_f32_conv_{mr}x{nr}_neon"
    assert step.calls[0].fields["panel_outer"] == int(split == "n")
    assert step.compiled is not None and step.compiled.choice.rule == "exact"
    assert step.compiled.method == OperatorMethod("in_place", "f32", mr, nr, split)


def test_rows_of_operators_relax_to_their_neighbors_and_no_further():
    table = table_of_operators(
        _A57, (form_of_points(_SHAPE), OperatorMethod("in_place", "f32", 4, 24))
    )
    for shape, rule, mr in (
        (GemmShape(42, 16, 24), "relaxed:scale", 4), (GemmShape(3000, 16, 24), "analytic", 6)
    ):  # fmt: skip
        (step,) = lower(graph_of([_convolution(shape)]), _A57, table).lowered.steps
        assert step.compiled is not None
        assert (step.compiled.choice.rule, step.compiled.method.mr) == (rule, mr)


@pytest.mark.parametrize(("columns", "tile"), [(16, (5, 16)), (24, (8, 8))])
def test_a_row_relaxes_only_where_the_cost_agrees(columns, tile):
    """On an A55 4096 x 24 x 16 takes 0.75 of its time in tiles of 5 x 16, but neighbors with the
    same key took longer: one row slowed down the short-range face detector by 9%."""
    board, shape = load_board("rk3566"), GemmShape(4096, 24, 16)
    row = form_of_points(shape), OperatorMethod("in_place", "f32", 5, 16)
    table = table_of_operators(board, row)
    case = _convolution(GemmShape(4096, 24, columns))
    (step,) = lower(graph_of([case]), board, table).lowered.steps
    made = step.compiled
    assert made is not None and (made.method.mr, made.method.nr) == tile
    assert ("times the analytic choice here" in made.choice.why) == (tile == (8, 8))


def test_a_product_row_without_a_method_leaves_the_choice_to_the_rule():
    board, shape = load_profile("x86-64-v3"), GemmShape(64, 64, 64)
    row = GemmRow(key_of(shape, 0, Sequences(), packed="b"), None, shape, "tuner")
    table = KnowledgeBase((board.platform,)).with_rows([row])
    (step,) = lower(graph_of([_convolution(shape)]), board, table).lowered.steps
    choice = step.compiled.choice
    assert choice.rule == "analytic" and "nothing beat the analytic method" in choice.why


def test_rows_of_another_form_say_nothing():
    other = dataclasses.replace(form_of_points(_SHAPE), window=(3, 3))
    table = table_of_operators(_A57, (other, OperatorMethod("in_place", "f32", 4, 24)))
    (step,) = lower(graph_of([_convolution(_SHAPE)]), _A57, table).lowered.steps
    assert step.compiled is not None and step.compiled.choice.row is None


def test_row_with_a_method_that_no_kernel_has_is_not_taken():
    table = table_of_operators(
        _A57, (form_of_points(_SHAPE), OperatorMethod("in_place", "f32", 99, 24))
    )
    (step,) = lower(graph_of([_convolution(_SHAPE)]), _A57, table).lowered.steps
    assert step.compiled is not None and step.compiled.choice.rule == "analytic"
    assert "99 x 24" in step.compiled.choice.why


def test_row_decides_between_winograd_and_the_direct_convolution():
    rng = np.random.default_rng(3)
    weights = constant(rng.standard_normal((32, 3, 3, 32)).astype(np.float32))
    case = Case(ops.Conv2D(padding=Padding(1, 1, 1, 1)), (tensor((1, 16, 16, 32)), weights, None))
    graph = graph_of([case])
    (plain,) = lower(graph, _A57, KnowledgeBase((_A57.platform,))).lowered.steps
    assert plain.compiled is not None and plain.compiled.method.family == "winograd"
    form = Form("conv", GemmShape(256, 288, 32), "f32", (1, 16, 16), (3, 3))
    table = table_of_operators(_A57, (form, OperatorMethod("in_place", "f32", 8, 8)))
    (step,) = lower(graph, _A57, table).lowered.steps
    assert step.kernel == "ek_f32_conv_8x8_neon"
    other = step.compiled.choice.runner_up
    assert other is not None and other.method == plain.compiled.method


@pytest.mark.parametrize("board", ["a53", "a72", "a76", "bpi-f3", "orangepi-pc", "visionfive2"])
@pytest.mark.parametrize("kind", ["conv", "depthwise"])
def test_without_a_row_no_runner_up_costs_less(kind, board):
    profile = load_profile(board)
    bare = KnowledgeBase((profile.platform,))
    for size, channels in ((4, 32), (16, 24), (31, 17)):
        shape = GemmShape(size * size, 25, channels)
        form = Form(kind, shape, "f32", (1, size, size), (5, 5), (2, 2))
        other = choose(bare, profile, isa_of(profile.simd), form)[1].runner_up
        assert other is None or other.cost >= 1


def test_row_decides_how_many_rows_a_depthwise_convolution_makes():
    weights = constant(np.ones((1, 3, 3, 8), np.float32))
    case = Case(ops.DepthwiseConv2D(), (tensor((1, 9, 9, 8)), weights, None))
    form = Form("depthwise", GemmShape(49, 9, 8), "f32", (1, 7, 7), (3, 3))
    table = table_of_operators(_A57, (form, OperatorMethod("depthwise", "f32", 1, 4)))
    (step,) = lower(graph_of([case]), _A57, table).lowered.steps
    assert step.kernel == "ek_f32_dwconv_3x3s1_1_neon"


@pytest.mark.parametrize(
    ("board", "columns"),
    [("rpi5", 32), ("rpi4", 12), ("rpi3", 12), ("rk3566", 12), ("generic-aarch64", 12)],
)
def test_one_row_has_wide_tiles_where_these_gain(board, columns):
    """In simulated time 32 columns take 0.93 of the time of 12 on an A76, 0.97 to 1.01 on an
    A72, 1.5 on an A53."""
    profile = load_profile(board)
    form = Form("dense", GemmShape(1, 640, 128), "f32", weight_bytes=4 * 640 * 128)
    found = [c for c in candidates_of(form, profile.isa, profile) if c.proven]
    assert min(found, key=lambda c: c.cost).method.nr == columns


@pytest.mark.parametrize(
    ("board", "shape", "tile"),
    [
        *((b, GemmShape(144, k, n), (8, 8)) for b in ("rpi3", "rk3566") for k, n in
          ((16, 4), (32, 16), (64, 24), (128, 96))),
        *((b, GemmShape(36, 128, 12), (6, 12)) for b in ("rpi3", "rk3566", "rpi4", "rpi5")),
        *(("rpi5", GemmShape(m, k, n), (8, 8)) for m, k, n in
          ((144, 16, 8), (64, 32, 16), (144, 32, 32))),
        ("rpi4", GemmShape(144, 128, 96), (6, 12)),
    ],
)  # fmt: skip
def test_cores_take_the_tile_whose_measured_steps_take_least(board, shape, tile):
    """In simulated time, 8 x 8 takes 0.83, 0.85, 0.96 and 0.95 of the time of 6 x 12 on the
    first four shapes on an A53, 0.76, 0.78, 0.95 and 0.93 on an A55; 1.12 and 1.01 for 36 x 12. On
    an A76 it takes 0.96, 0.91 and 0.99 on the next three, and 1.01 to 1.10 for 36 x 12."""
    profile = load_profile(board)
    form = Form("conv", shape, "f32", (1, 1, shape.m))
    found = [c for c in candidates_of(form, profile.isa, profile) if c.proven]
    method = min(found, key=lambda c: c.cost).method
    assert (method.mr, method.nr) == tile


def test_tiles_whose_rows_find_no_register_are_dear_on_an_a76():
    """In simulated time on four threads, 8 x 12, 12 x 8 and 24 x 4 take 1.09 to 1.22 of the
    time of 8 x 8 and 6 x 12 there; 4 x 24 and 4 x 20 take 0.95."""
    board, form = load_profile("rpi5"), form_of_points(GemmShape(4096, 48, 48))
    found = candidates_of(form, board.isa, board)
    costs = {(c.method.mr, c.method.nr): c.cost for c in found if c.method.split == "m"}
    usual = min(costs[8, 8], costs[6, 12])
    assert min(costs[8, 12], costs[12, 8], costs[24, 4]) > 1.15 * usual
    assert max(costs[4, 24], costs[4, 20], costs[5, 16]) < 1.15 * usual


@pytest.mark.parametrize("rows", [1, 64])
def test_a_single_tile_of_rows_finds_them_once_for_all_channels(rows):
    form = Form("dense", GemmShape(rows, 640, 640), "f32", weight_bytes=4 * 640 * 640)
    found = candidates_of(form, _A57.isa, dataclasses.replace(_A57, l2_bytes=524288))
    assert {c.method.split for c in found if c.proven} == {"m" if rows == 1 else "n"}


@pytest.mark.parametrize("split", ["m", "n"])
def test_row_of_an_operator_gives_blocks_of_k_that_compute_the_same(split, tmp_path):
    board, shape = load_board("local"), GemmShape(29, 700, 37)
    case = _convolution(shape)
    residual = tensor((1, 1, shape.m, shape.n))
    graph = graph_of([dataclasses.replace(case, ins=(*case.ins, residual))])
    form = form_of_points(shape)
    found = candidates_of(form, board.isa, board)
    how = next(c.method for c in found if c.method.kc == 128 and c.method.split == split)
    table = table_of_operators(board, (form, how))
    (step,) = lower(graph, board, table).lowered.steps
    assert step.compiled is not None and step.compiled.method == how
    assert step.kernel.endswith(f"_{how.mr}x{how.nr}_k128_{board.simd}")
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path, table=table), inputs), inputs)


def test_blocks_of_k_are_for_panels_that_leave_the_cache():
    small, large = (
        candidates_of(form_of_points(GemmShape(49, k, 512)), _A57.isa, _A57) for k in (64, 1024)
    )
    assert all(c.method.kc is None for c in small)
    assert {c.method.kc for c in large} >= {None, 128, 256}
    assert not any(c.proven for c in large if c.method.kc)


def test_tables_keep_rows_of_operators(tmp_path):
    table = table_of_operators(
        _A57,
        (form_of_points(GemmShape(9, 999, 24)), OperatorMethod("in_place", "f32", 8, 8, kc=256)),
        (form_of_points(_SHAPE), OperatorMethod("in_place", "f32", 4, 24, "n")),
        (form_of_points(GemmShape(7, 16, 24)), None),
        (form_of_points(GemmShape(9, 99, 2)), OperatorMethod("chain", "f32", members=3)),
    )
    path = tmp_path / "table.json"
    path.write_text(table_text(table))
    assert load_table(path) == table
    assert table_text(build_table([], base=table)) == path.read_text()
    path.write_text(path.read_text().replace('[4,24,"n"]', '[4,24,"somehow"]'))
    damaged = load_table(path)
    assert (len(damaged.skipped), len(damaged.operators)) == (1, 3)


@pytest.mark.parametrize("dtype", few_or_all(["f32", "s8"], ["f32"]))
@pytest.mark.parametrize(
    "target",
    [
        *(pytest.param(board, id=board.simd) for board in x86_boards()[:1]),
        *(
            pytest.param(board, id=board.simd, marks=pytest.mark.exhaustive)
            for board in x86_boards()[1:-1]
        ),
        *(pytest.param(b, id=b.simd, marks=pytest.mark.slow) for b in x86_boards()[-1:]),
    ],
)
def test_kernels_of_all_methods_compute_what_the_reference_computes(dtype, target, tmp_path):
    """One convolution per method, each with a different window, with padding."""
    graph, table, methods = every_method(target, dtype)
    steps = lower(graph, target, table).lowered.steps
    assert [s.compiled.method for s in steps if s.compiled] == methods
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, target, tmp_path, table=table), inputs), inputs)


@pytest.mark.parametrize("board", ["rpi3", "rk3566"])
def test_threads_whose_transformed_weights_leave_the_cache_run_direct(board):
    """On four A53 this takes 14.5 instead of 46.9 million cycles of simulated time, on four
    A55 14.6 instead of 27.7; on one, Winograd's transform takes less than half of the direct
    convolution's."""
    profile = load_board(board)
    weights = constant(np.random.default_rng(0).random((128, 3, 3, 128), np.float32))
    case = Case(ops.Conv2D(padding=Padding(1, 1, 1, 1)), (tensor((1, 28, 28, 128)), weights, None))
    found = []
    for threads in (1, 4):
        table = KnowledgeBase((profile.platform,))
        (step,) = lower(graph_of([case]), profile, table, threads=threads).lowered.steps
        assert step.compiled is not None
        found.append(step.compiled.method.family)
    assert found == ["winograd", "in_place"]


@pytest.mark.parametrize(("board", "family"), [("rpi5", "winograd"), ("rpi4", "in_place")])
def test_threads_share_few_tiles_unless_all_wait_for_their_weights(board, family):
    """Four tiles of 64 x 64 channels become one task per thread if memory is not the bottleneck. In
    simulated time this takes 36,500 instead of 108,600 cycles on four A76; 198,000 instead of
    484,000 on four A72, where transformed weights fill more than half of the last-level cache."""
    profile = load_board(board)
    weights = constant(np.random.default_rng(0).random((64, 3, 3, 64), np.float32))
    case = Case(ops.Conv2D(padding=Padding(1, 1, 1, 1)), (tensor((1, 8, 8, 64)), weights, None))
    found = {}
    for threads in (1, 4):
        table = KnowledgeBase((profile.platform,))
        (step,) = lower(graph_of([case]), profile, table, threads=threads).lowered.steps
        (call,) = step.calls
        assert step.compiled is not None and isinstance(call, KernelCall)
        found[threads] = step.compiled.method.family, call.tasks
    assert found[1] == ("winograd", 1)
    assert found[4][0] == family and (found[4][1] or 0) >= 4


@pytest.mark.parametrize(
    ("pixels", "channels", "others", "family"),
    [(10, 32, 0, "winograd"), (10, 32, 5, "in_place"), (19, 64, 5, "winograd")],
)
def test_threads_wait_for_transformed_weights_that_other_layers_evict(
    pixels, channels, others, family
):
    """With 64 channels, whose transformed weights take 295 and 590 KB, on four threads of a
    Raspberry Pi 5: alone, and beside layers that take more than its last-level cache."""
    board, rng = load_board("rpi5"), np.random.default_rng(0)
    x = tensor((1, pixels, pixels, channels))
    weights = constant(rng.random((64, 3, 3, channels), np.float32))
    case = Case(ops.Conv2D(padding=Padding(1, 1, 1, 1)), (x, weights, None))
    more = [constant(rng.random((512, 256), np.float32)) for _ in range(others)]
    graph = graph_of([case, *(Case(ops.FullyConnected(), (tensor((1, 256)), w)) for w in more)])
    step, *_ = lower(graph, board, KnowledgeBase((board.platform,)), threads=4).lowered.steps
    assert step.compiled is not None
    assert step.compiled.method.family == family
