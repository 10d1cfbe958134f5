"""Bands of rows are part of an operator's method, chosen by the rule or by a table row."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from edgekit.host.compiler.codegen.section import section_code
from edgekit.host.compiler.costs.methods.bands import BANDS
from edgekit.host.compiler.costs.methods.operators import (
    Form,
    OperatorMethod,
    candidates_of,
    rows_at_once,
)
from edgekit.host.compiler.exporters import write_tflite
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.plan import Plan
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.tables.gemm_file import load_table, table_text
from edgekit.host.lab.history.operator_history import OperatorMeasurement
from edgekit.host.lab.history.store import History
from edgekit.host.lab.history.tunable_ops import methods_to_try, tuning_task_of
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import (
    BoardProfile,
    board_names,
    caches_of,
    last_cache,
    load_board,
    load_profile,
)
from tests.support.kernel_runs import build, check, run_here
from tests.support.method_cases import table_of_operators
from tests.support.op_cases import Case, constant, quant, tensor
from tests.support.op_graphs import graph_of, inputs_of

_SHAPE = GemmShape(131, 1538, 53)  # the last band, tile, panel and step of k are partial
_A53 = load_profile("a53")


def _graph(dtype: str = "f32", shape: GemmShape = _SHAPE) -> Graph:
    rng = np.random.default_rng(1)
    if dtype == "f32":
        weights = constant(rng.standard_normal((shape.n, shape.k)).astype(np.float32) / 64)
        return graph_of([Case(ops.FullyConnected(), (tensor((shape.m, shape.k)), weights))])
    values = rng.integers(-127, 128, (shape.n, shape.k))
    weights = constant(values, DType.I8, quant(0.01, 0))
    x = tensor((shape.m, shape.k), DType.I8, quant(0.05, 3))
    return graph_of([Case(ops.FullyConnected(), (x, weights), quant(4.0, -5))])


def _form(dtype: str = "f32", shape: GemmShape = _SHAPE) -> Form:
    size = 4 if dtype == "f32" else 1
    sizes = {"weight_bytes": size * shape.k * shape.n, "x_bytes": size * shape.m * shape.k}
    return Form("dense", shape, dtype, (1, 1, shape.m), **sizes)


def _small(board: BoardProfile, dtype: str) -> BoardProfile:
    """A board whose last-level cache holds a third of the rows and no weights."""
    return dataclasses.replace(board, l2_bytes=_form(dtype).x_bytes // 3, l3_bytes=0)


def _usual(dtype: str, board: BoardProfile) -> OperatorMethod:
    """A method with channels in the outer loop, with bands by the rule."""
    found = candidates_of(_form(dtype), board.isa, board)
    return next(c.method for c in found if c.proven and c.method.split == "n")


def _code(plan: Plan) -> str:
    return "".join(section_code(plan, section).text for section in plan.sections)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("dtype", ["f32", "s8"])
@pytest.mark.parametrize("name", board_names())
def test_the_band_that_is_walked_is_that_of_the_method(name, dtype, threads):
    board = _small(load_board(name), dtype)
    plan = lower(_graph(dtype), board, threads=threads)
    (step,) = plan.lowered.steps
    made = step.compiled
    assert made is not None and made.choice.form is not None
    assert made.choice.form.x_bytes == _form(dtype).x_bytes
    rows = rows_at_once(made.method, made.choice.form, board, threads)
    assert made.band_rows == rows and made.method.mr
    assert f".band = {rows // made.method.mr}," in _code(plan).replace("\n", " ")
    assert rows * _form(dtype).x_bytes <= caches_of(board).l2 * _SHAPE.m


@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("dtype", ["f32", "s8"])
def test_a_row_that_names_a_band_changes_what_is_generated(dtype, band):
    board = _small(_A53, dtype)
    by_rule = _usual(dtype, board)
    named = dataclasses.replace(by_rule, band=band)
    codes = []
    for method in (by_rule, named):
        plan = lower(_graph(dtype), board, table_of_operators(board, (_form(dtype), method)))
        (step,) = plan.lowered.steps
        assert step.compiled is not None and step.compiled.choice.rule == "exact"
        assert step.compiled.band_rows == rows_at_once(method, _form(dtype), board, 1)
        codes.append(_code(plan))
    assert (codes[0] == codes[1]) == (band == 2)  # the rule's choice is half of the cache


@pytest.mark.slow
@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("dtype", ["f32", "s8"])
def test_all_bands_compute_the_same(dtype, band, tmp_path):
    board = _small(load_board("local"), dtype)
    graph, form = _graph(dtype), _form(dtype)
    method = dataclasses.replace(_usual(dtype, board), band=band)
    table = table_of_operators(board, (form, method))
    (step,) = lower(graph, board, table).lowered.steps
    assert step.compiled is not None and (step.compiled.band_rows > 0) == (band > 0)
    inputs = inputs_of(graph)
    check(graph, run_here(build(graph, board, tmp_path, table=table), inputs), inputs)


def test_bands_are_candidates_where_rows_leave_the_cache():
    """A single band is the most expensive: rows are reread for each panel."""
    inside = dataclasses.replace(_A53, l2_bytes=1 << 22)
    assert all(c.method.band is None for c in candidates_of(_form(), inside.isa, inside))
    board = _small(_A53, "f32")
    costs = {c.method: c.cost for c in candidates_of(_form(), board.isa, board)}
    usual = OperatorMethod("in_place", "f32", 8, 8, "n")
    bands = {m.band: p for m, p in costs.items() if dataclasses.replace(m, band=None) == usual}
    assert bands.keys() == {None, 0, 1, 4}  # 2 is the rule's choice
    assert bands[0] > max(bands[None], bands[1], bands[4]) and bands[None] == min(bands.values())


def test_a_band_is_kept_by_tables_and_by_the_history(tmp_path):
    method = OperatorMethod("in_place", "f32", 8, 8, "n", band=0)
    table = table_of_operators(_A53, (_form(), method))
    path = tmp_path / "table.json"
    path.write_text(table_text(table))
    assert load_table(path) == table
    path.write_text(path.read_text().replace('"n",null,0,1,0]', '"n",null,0,1,3]'))
    assert len(load_table(path).skipped) == 1
    measured = OperatorMeasurement(
        "rpi3", "cortex-a53", "m", "o", "dense", 1, _SHAPE, method, 1.0, 2.0,
        "2026-11-23T00:00:00Z", "0.1.0", "estimate", "cycles",
    )  # fmt: skip
    by_rule = dataclasses.replace(measured, method=dataclasses.replace(method, band=None))
    with History(tmp_path / "history.sqlite") as history:
        history.add_operators([measured, by_rule])
        assert history.read_operators("cortex-a53").measurements == [measured, by_rule]


def test_a_row_holds_for_a_neighbor_whose_rows_stay_in_the_cache():
    shape = GemmShape(128, 1500, 53)
    board = dataclasses.replace(load_board("rpi4"), l2_bytes=8 * shape.m * shape.k)
    method = OperatorMethod("in_place", "f32", 5, 16, "n", band=2)
    table = table_of_operators(board, (_form(), method))
    (step,) = lower(_graph(shape=shape), board, table).lowered.steps
    assert step.compiled is not None
    assert (step.compiled.method.mr, step.compiled.band_rows) == (5, 0)
    assert step.compiled.choice.rule.startswith("relaxed")


def test_the_tuner_tries_other_bands_than_that_of_the_rule(tmp_path):
    path = tmp_path / "dense.tflite"
    path.write_bytes(write_tflite(_graph(shape=GemmShape(128, 1536, 384))))
    (operator,) = tuning_task_of(path, load_board("orangepi-pc"), DEFAULT_OPTIONS).operators
    (methods,) = methods_to_try([operator]).values()
    bands = {m.band for m in methods if m.split == "n"}
    assert operator.default.split == "n" and bands == {None, 1, 4}  # 0 costs too much
    assert len({(m.mr, m.nr) for m in methods}) > 3


@pytest.mark.parametrize(
    ("board", "shape", "threads", "kc"),
    [
        ("rk3566", (128, 1536, 384), 4, 256), ("rpi3", (128, 1536, 384), 2, 256),
        ("rk3566", (128, 1536, 384), 1, None),  # bands are equally fast there
        ("rk3566", (128, 384, 1536), 4, None),  # its rows fit in the cache
        ("rk3566", (1500, 384, 1536), 4, None),  # partial sums would exceed the cache
        ("rpi4", (128, 1536, 384), 4, None), ("local", (512, 1536, 384), 4, None),
    ],
)  # fmt: skip
def test_several_threads_share_blocks_of_k_where_their_rows_leave_the_cache(
    board, shape, threads, kc
):
    (step,) = lower(
        _graph(shape=GemmShape(*shape)), load_board(board), None, threads=threads
    ).lowered.steps
    assert step.compiled is not None and step.compiled.method.kc == kc
    call = step.calls[0]
    assert call.fields["block_outer"] == int(kc is not None)
    assert call.grain == (math.ceil(call.tasks / threads) if kc else 1)


@pytest.mark.parametrize(
    ("board", "m", "k", "n"),
    [("rpi3", 2001, 256, 512), ("rk3566", 1601, 600, 128), ("rpi4", 4000, 300, 700),
     ("rpi5", 6401, 512, 384)],
)  # fmt: skip
def test_several_threads_walk_bands_that_stay_cached_together(board, m, k, n):
    """Rows that the last-level cache holds are walked at once."""
    profile, shape = load_board(board), GemmShape(m, k, n)
    (step,) = lower(_graph(shape=shape), profile, None, threads=4).lowered.steps
    made = step.compiled
    assert made is not None and made.method.kc is None and made.method.nr is not None
    assert 0 < made.band_rows <= m / 4
    held = 4 * 4 * k * (made.band_rows + made.method.nr)
    assert held <= 0.75 * last_cache(profile)
    fewer = dataclasses.replace(shape, m=last_cache(profile) // (4 * k))
    (step,) = lower(_graph(shape=fewer), profile, None, threads=4).lowered.steps
    assert step.compiled is not None and step.compiled.band_rows == 0


@pytest.mark.parametrize(("mr", "nr", "split"), [(8, 8, "n"), (5, 16, "n"), (5, 16, "m")])
@pytest.mark.parametrize(("board", "kc"), [("rk3566", 256), ("rpi3", 256), ("rpi4", None)])
def test_a_row_of_one_thread_leaves_the_walk_of_several_to_the_rule(board, kc, mr, nr, split):
    """Rows for one thread have a loop order without blocks of k, twice as slow on four threads."""
    shape = GemmShape(128, 1536, 384)
    profile = load_board(board)
    method = OperatorMethod("in_place", "f32", mr, nr, split)
    found = {}
    for measured in (1, 4):
        table = table_of_operators(profile, (_form("f32", shape), method), threads=measured)
        (step,) = lower(_graph(shape=shape), profile, table, threads=4).lowered.steps
        assert step.compiled is not None
        found[measured] = step.compiled.method, step.compiled.choice
    assert found[4][0] == method and found[4][1].rule == "exact"
    by_rule = dataclasses.replace(method, split="n", kc=kc)
    assert found[1][0] == by_rule and found[1][1].rule == "relaxed:threads"
    assert ("by the analytic rule" in found[1][1].why) == (by_rule != method)
    assert "by the analytic rule" not in found[4][1].why


@pytest.mark.parametrize(
    ("m", "threads", "split"),
    [(36, 1, "m"), (36, 2, "m"), (36, 4, "n"), (64, 4, "m"), (20, 2, "n")],
)
@pytest.mark.parametrize("name", ["rpi3", "rpi5", "bpi-f3"])
def test_threads_share_weights_where_those_are_far_more_than_rows(name, m, threads, split):
    """k and n are 128; x86 keeps its loop order."""
    for profile, expected in ((load_board(name), split), (load_profile("x86-64-v4"), "m")):
        graph, table = _graph(shape=GemmShape(m, 128, 128)), table_of_operators(profile)
        (step,) = lower(graph, profile, table, threads=threads).lowered.steps
        assert step.compiled is not None and step.compiled.method.split == expected
