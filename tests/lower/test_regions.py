"""Regions of channel-major operators: where they end, and that they change nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from edgekit.device.errors import InputError as TableError
from edgekit.host.errors import InputError
from edgekit.host.golden.inputs import random_input
from edgekit.host.graph.evaluate import evaluate
from edgekit.host.graph.types import Graph
from edgekit.host.lower.regions import choose_planes
from edgekit.host.tables.layouts import layout_table_of, user_layout_table
from edgekit.kb.board import load_board, load_profile
from edgekit.kb.layout_table import CODES, KERNELS, WINDOWS, Case, LayoutTable, Work, read_layouts
from edgekit.kb.places import shipped_folder
from tests.support.group_graphs import pruned_blocks
from tests.support.kernel_runs import build, run_here


def _table(transpose: float = 1.0, depthwise: float = 0.9) -> LayoutTable:
    """A product costs 1, of a window on planes less; a transposed value `transpose`."""
    rates = {"planar_depthwise": depthwise}
    works = [Work(1 << n, 1 << n - 4) for n in (12, 15, 18)]
    cases = [
        Case(kernel, work, rates.get(kernel, 1.0) * work.products)
        for kernel in KERNELS
        if kernel != "transpose"
        for work in works
    ]
    cases += [Case("transpose", Work(0, w.values), transpose * w.values) for w in works]
    return LayoutTable("test", "nanoseconds", tuple(cases))


def _kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


def test_a_region_converts_at_its_borders_only():
    after = choose_planes(pruned_blocks(0.3), _table(), 4)
    assert _kinds(after) == [
        "transpose", "planar_depthwise_conv2d", "planar_conv2d", "planar_depthwise_conv2d",
        "planar_conv2d", "add", "transpose", "resize_bilinear",
    ]  # fmt: skip


@pytest.mark.parametrize("table", [None, _table(transpose=1e6)])
def test_what_does_not_pay_stays(table):
    graph = pruned_blocks(0.3)
    assert choose_planes(graph, table, 4) is graph


def test_dense_weights_stay():
    graph = pruned_blocks(1.0)
    assert choose_planes(graph, _table(), 4) is graph


def test_a_slow_kernel_is_left_out_of_the_region():
    after = choose_planes(pruned_blocks(0.3), _table(depthwise=100.0), 4)
    assert "planar_conv2d" in _kinds(after)
    assert "planar_depthwise_conv2d" not in _kinds(after)


def test_the_outputs_stay(tmp_path):
    graph = pruned_blocks(0.3)
    inputs = {"x": random_input(graph.tensors["x"], np.random.default_rng(0))}
    expected = evaluate(graph, inputs).outputs
    board = load_board("local")
    after = choose_planes(graph, _table(), 16)
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
    assert kept is not None and kept.text() == _table().text() and kept.error < 1e-3
    path.write_text(_table().text().replace("sparse", "spares"))
    with pytest.raises(InputError, match=r"edgekit tune layouts"):
        layout_table_of(board)
    path.write_text("{")
    with pytest.raises(InputError, match="expected a table of layouts"):
        layout_table_of(board)


def _with_more_inputs(case: Case) -> Case:
    return replace(case, work=replace(case.work, inputs=case.work.inputs + 1))


def _with_longer_vectors(case: Case) -> Case:
    """Half as many pieces of one kernel, more padding of another."""
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


def test_a_table_of_an_older_edgekit_is_read(tmp_path):
    known, path = _table(), tmp_path / "old.json"
    cases = [[c.kernel, *map(int, c.work.sizes[:3]), round(c.cost)] for c in known.cases]
    head = {"schema": "edgekit.kb.layouts/1", "platform": "test", "unit": "nanoseconds"}
    path.write_text(json.dumps({**head, "cases": cases}))
    assert sorted(read_layouts(path).cases, key=str) == sorted(
        (replace(c, cost=float(round(c.cost))) for c in known.cases), key=str
    )


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        ("a7", "cortex-a53"),
        ("rk3566", "cortex-a53"),
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
    usual = {"dense", "depthwise", "dense_row", "dense_rows", "dense_window", "dense_codes"}
    assert dearer == (set() if name.startswith("x86") else {*KERNELS, *WINDOWS, *CODES} - usual)


def test_a_core_of_another_family_lends_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    found = layout_table_of(load_profile("bpi-f3"))
    assert found == read_layouts(shipped_folder("layouts") / "spacemit-x60.json")
    other = replace(load_profile("bpi-f3"), arch="loongarch64", core="la664", inherited=())
    assert layout_table_of(other) is None


def test_a_core_without_vectors_takes_none(monkeypatch, tmp_path):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    assert layout_table_of(load_profile("visionfive2")) is None


def test_inputs_tell_operators_of_equal_work_apart():
    works = [Work(1 << 12, 1 << 8, inputs=n) for n in (1 << 8, 1 << 12, 1 << 16)]
    cases = [Case("dense", work, 10.0 * work.inputs) for work in works]
    known = LayoutTable("test", "cycles", tuple(cases))
    near, far = (known.cost("dense", work) for work in (works[0], works[2]))
    assert far > 100 * near
    plain = [replace(case, work=replace(case.work, inputs=0)) for case in cases]
    old = LayoutTable("test", "cycles", tuple(plain))
    assert old.cost("dense", works[0]) == old.cost("dense", works[2])
