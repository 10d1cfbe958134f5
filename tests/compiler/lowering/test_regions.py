"""Regions of channels-first operators: their boundaries, and unchanged results."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from edgekit.device.runtime.errors import InputError as TableError
from edgekit.host.compiler.costs.layout_table import (
    CHAIN,
    I8_KERNELS,
    KERNELS,
    WINDOWS,
    KernelWork,
    LayoutCase,
    LayoutTable,
    read_layouts,
)
from edgekit.host.compiler.costs.layouts import Saved, saved_by_chain
from edgekit.host.compiler.costs.methods.operators import Form, OperatorMethod
from edgekit.host.compiler.golden.vectors import random_input
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.lowering.channels_first.regions import (
    channels_last_chains,
    choose_channels_first,
)
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.tables.layouts import layout_table_of, user_layout_table
from edgekit.host.errors import InputError
from edgekit.host.lab.tune.layouts import left_out_error
from edgekit.kb.features import GemmShape
from edgekit.kb.tables.paths import shipped_folder
from edgekit.kb.targets.board import load_board, load_profile
from tests.support.group_graphs import CHANNELS, SIDE, pruned_blocks
from tests.support.kernel_runs import build, run_here
from tests.support.method_cases import table_of_operators


def _table(transpose: float = 1.0, depthwise: float = 0.9) -> LayoutTable:
    """A product costs 1, in a channels-first window `depthwise`; a transposed value `transpose`."""
    rates = {"depthwise_chw": depthwise}
    works = [KernelWork(1 << n, 1 << n - 4) for n in (12, 15, 18)]
    cases = [
        LayoutCase(kernel, work, rates.get(kernel, 1.0) * work.products)
        for kernel in KERNELS
        if kernel != "transpose"
        for work in works
    ]
    cases += [LayoutCase("transpose", KernelWork(0, w.values), transpose * w.values) for w in works]
    return LayoutTable("test", "nanoseconds", tuple(cases))


def _kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


def test_a_region_converts_at_its_borders_only():
    after = choose_channels_first(pruned_blocks(0.3), _table(), 4)
    assert _kinds(after) == [
        "transpose",
        "channels_first_depthwise_conv2d",
        "channels_first_conv2d",
        "channels_first_depthwise_conv2d",
        "channels_first_conv2d",
        "add",
        "transpose",
        "resize_bilinear",
    ]


@pytest.mark.parametrize("table", [None, _table(transpose=1e6)])
def test_what_does_not_pay_stays(table):
    graph = pruned_blocks(0.3)
    assert choose_channels_first(graph, table, 4) is graph


def test_dense_weights_stay():
    graph = pruned_blocks(1.0)
    assert choose_channels_first(graph, _table(), 4) is graph


@pytest.mark.parametrize(("density", "gains"), [(0.98, False), (0.85, True)])
def test_a_gain_within_the_error_of_costs_is_none(density, gains):
    """Transposes are free here and depthwise costs equal: only zero weights make a difference."""
    graph = pruned_blocks(density)
    after = choose_channels_first(graph, _table(transpose=1e-6, depthwise=1.0), 4)
    assert ("channels_first_conv2d" in _kinds(after)) is gains
    assert gains or after is graph


def test_neighbors_of_which_none_is_pruned_stay():
    """Only depthwise convolutions are much cheaper channels-first, products are not."""
    table = _table(depthwise=0.1)
    cases = [replace(c, cost=1e3 * c.cost) if c.kernel == "sparse" else c for c in table.cases]
    graph = pruned_blocks(0.3)
    assert choose_channels_first(graph, replace(table, cases=tuple(cases)), 4) is graph


def test_a_slow_kernel_is_left_out_of_the_region():
    after = choose_channels_first(pruned_blocks(0.3), _table(depthwise=100.0), 4)
    assert "channels_first_conv2d" in _kinds(after)
    assert "channels_first_depthwise_conv2d" not in _kinds(after)


def test_a_region_has_to_gain_more_than_channels_last_chains_save():
    graph, table = pruned_blocks(0.3), _table()
    gain = SIDE**2 * CHANNELS * CHANNELS  # of a product; exceeds that of a depthwise convolution
    for part in (("depth_a", "point_b"), ("depth_c", "point_d")):
        little = [Saved(frozenset(part), 0.1 * gain)]
        assert (
            _kinds(choose_channels_first(graph, table, 4, None, little)).count(
                "channels_first_conv2d"
            )
            == 2
        )
        much = [Saved(frozenset(part), 2.0 * gain)]
        after = choose_channels_first(graph, table, 4, None, much)
        assert [n.op.kind for n in after.nodes if n.name in part] == ["depthwise_conv2d", "conv2d"]
        assert "channels_first_conv2d" in _kinds(after)  # the other block


def test_chains_of_the_channels_last_graph_are_known(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    board, graph, rows = load_profile("a72"), pruned_blocks(0.3), KnowledgeBase(("cortex-a72",))
    table = layout_table_of(board)
    assert table is not None and table.knows(CHAIN)
    nodes = {n.name: n for n in graph.nodes}
    pair = [nodes["depth_a"], nodes["point_b"]]
    form = Form("chain", GemmShape(SIDE**2, 9, CHANNELS), "f32", (1, SIDE, SIDE), (3, 3))
    shown = table_of_operators(board, (form, OperatorMethod("chain", "f32", members=2)))
    assert channels_last_chains(graph, board, table, rows) == ()
    dear = replace(table, cases=tuple(_half_cost(c) for c in table.cases))
    found = channels_last_chains(graph, board, dear, shown)
    assert found[0] == saved_by_chain(graph, pair, dear, board.isa.vl) and found[0].cost > 0
    assert found[0].names == {"depth_a", "point_b"}
    older = replace(table, cases=tuple(c for c in table.cases if c.kernel != CHAIN))
    assert channels_last_chains(graph, board, older, shown) == ()


def _half_cost(case: LayoutCase) -> LayoutCase:
    return replace(case, cost=case.cost / 2) if case.kernel == CHAIN else case


def test_images_of_equal_work_and_other_rows_have_costs_of_their_own():
    few, many = KernelWork(1 << 16, 1 << 12, 24, 1 << 12), KernelWork(1 << 16, 1 << 12, 96, 1 << 12)
    table = LayoutTable(
        "t", "cycles", (LayoutCase("depthwise", few, 9e5), LayoutCase("depthwise", many, 3e5))
    )
    assert table.cost("depthwise", few) > 2.5 * table.cost("depthwise", many)
    plain = [replace(c, work=replace(c.work, pieces=1)) for c in table.cases]
    old = replace(table, cases=tuple(plain))
    assert old.cost("depthwise", few) == old.cost("depthwise", many)


def test_depthwise_costs_are_those_that_were_measured(monkeypatch, tmp_path):
    """Images of 96x96x8 and 24x24x128 have the same values and products but different line sizes,
    so that a cache holds different numbers of lines."""
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    for name in ("rpi3", "rpi4", "rpi5", "bpi-f3"):
        table = layout_table_of(load_profile(name))
        assert table is not None
        for case in (c for c in table.cases if c.kernel == "depthwise"):
            assert table.cost("depthwise", case.work) == pytest.approx(case.cost, rel=0.05)


def test_the_outputs_stay(tmp_path):
    graph = pruned_blocks(0.3)
    inputs = {"x": random_input(graph.tensors["x"], np.random.default_rng(0))}
    expected = evaluate(graph, inputs).outputs
    board = load_board("local")
    after = choose_channels_first(graph, _table(), 16)
    made = run_here(build(after, board, tmp_path), inputs)
    for found in (evaluate(after, inputs).outputs, made):
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4)


def test_a_broken_table_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    board = load_board("local")
    path = user_layout_table(board)
    path.parent.mkdir(parents=True)
    path.write_text(_table().text())
    kept = layout_table_of(board)
    assert kept is not None and kept.text() == _table().text() and left_out_error(kept) < 1e-3
    path.write_text(_table().text().replace("sparse", "spares"))
    with pytest.raises(InputError, match=r"edgekit lab tune cost --layouts"):
        layout_table_of(board)
    path.write_text("{")
    with pytest.raises(InputError, match="expected a table of layouts"):
        layout_table_of(board)


def _with_more_inputs(case: LayoutCase) -> LayoutCase:
    return replace(case, work=replace(case.work, inputs=case.work.inputs + 1))


def _with_longer_vectors(case: LayoutCase) -> LayoutCase:
    """Half as many pieces in one kernel, more padding in another."""
    w = case.work
    if case.kernel == "sparse_row":
        w = replace(w, pieces=2 * w.pieces + 1)
    elif case.kernel == "sparse":
        w = replace(w, products=2 * w.products, values=2 * w.values)
    return replace(case, work=w)


def test_a_table_beside_one_of_other_vectors_says_what_differs(tmp_path):
    known = _table()
    (tmp_path / "test.json").write_text(known.text())
    wide = LayoutTable("wide", "cycles", tuple(map(_with_longer_vectors, known.cases)))
    (tmp_path / "wide.json").write_text(wide.text(like=known))
    found = read_layouts(tmp_path / "wide.json")
    assert found.text() == wide.text() != replace(wide, cases=known.cases).text()


def test_a_table_beside_another_one_has_costs_alone(tmp_path):
    known, path = _table(), tmp_path / "test.json"
    path.write_text(known.text())
    dear = LayoutTable("dear", "cycles", tuple(replace(c, cost=2 * c.cost) for c in known.cases))
    (tmp_path / "dear.json").write_text(dear.text(like=known))
    found = read_layouts(tmp_path / "dear.json")
    assert [c.work for c in found.cases] == [c.work for c in read_layouts(path).cases]
    assert [c.cost for c in found.cases] == [
        round(2 * c.cost) for c in sorted(known.cases, key=lambda c: KERNELS.index(c.kernel))
    ]
    with pytest.raises(ValueError, match="expected the operators of the table of test"):
        LayoutTable("odd", "cycles", tuple(map(_with_more_inputs, known.cases))).text(like=known)
    with pytest.raises(ValueError, match="expected the operators of the table of test"):
        LayoutTable("few", "cycles", known.cases[1:]).text(like=known)


@pytest.mark.parametrize(
    ("old", "new"), [('"like": "test"', '"like": "dear"'), ('"like": "test"', '"like": "none"')]
)
def test_costs_without_their_cases_are_refused(tmp_path, old, new):
    known = _table()
    path = tmp_path / "dear.json"
    path.write_text(known.text(like=known).replace(old, new))
    with pytest.raises(TableError, match="expected a table"):
        read_layouts(path)


def test_a_table_of_another_schema_is_refused_in_one_line(tmp_path):
    path = tmp_path / "old.json"
    head = {"schema": "edgekit.kb.layouts/2", "platform": "test", "unit": "nanoseconds"}
    path.write_text(json.dumps({**head, "cases": [["dense", 1, 1, 1, 5]]}))
    with pytest.raises(TableError) as caught:
        read_layouts(path)
    assert str(caught.value) == (
        f"{path}: expected schema edgekit.kb.layouts/1, found edgekit.kb.layouts/2; "
        "measure it again: edgekit lab tune cost --layouts"
    )


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        ("a7", "cortex-a53"),
        ("rv64gcv-zvl512b", "spacemit-x60"),
        ("jetson-nano", "cortex-a72"),
        ("x86-64-v3", "x86-64-v4"),
    ],
)
def test_a_board_without_a_table_borrows_one_of_its_family_and_must_gain_by_it(
    monkeypatch, tmp_path, name, platform
):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    found = layout_table_of(load_profile(name))
    assert found is not None and found.platform == platform
    lent = read_layouts(shipped_folder("layouts") / f"{platform}.json")
    dearer = {c.kernel for c, own in zip(found.cases, lent.cases, strict=True) if c.cost > own.cost}
    usual = {"dense", "depthwise", "dense_row", "dense_rows", "dense_window", "dense_i8", CHAIN}
    assert dearer == (
        set() if name.startswith("x86") else {*KERNELS, *WINDOWS, *I8_KERNELS} - usual
    )


def test_a_core_of_another_family_lends_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    found = layout_table_of(load_profile("bpi-f3"))
    assert found == read_layouts(shipped_folder("layouts") / "spacemit-x60.json")
    other = replace(load_profile("bpi-f3"), arch="loongarch64", core="la664", inherited=())
    assert layout_table_of(other) is None


def test_inputs_tell_operators_of_equal_work_apart():
    works = [KernelWork(1 << 12, 1 << 8, inputs=n) for n in (1 << 8, 1 << 12, 1 << 16)]
    cases = [LayoutCase("dense", work, 10.0 * work.inputs) for work in works]
    known = LayoutTable("test", "cycles", tuple(cases))
    near, far = (known.cost("dense", work) for work in (works[0], works[2]))
    assert far > 100 * near
    plain = [replace(case, work=replace(case.work, inputs=0)) for case in cases]
    old = LayoutTable("test", "cycles", tuple(plain))
    assert old.cost("dense", works[0]) == old.cost("dense", works[2])
