"""Building a table from history, and its file format."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest

from edgekit.host.compiler.costs.methods.gemm import Method, analytic_method
from edgekit.host.compiler.costs.methods.limits import limits_of
from edgekit.host.compiler.tables.gemm_file import KnowledgeBaseError, load_table, table_text
from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase
from edgekit.host.lab.history.measurement import Measurement
from edgekit.host.lab.tune.build import build_table
from edgekit.kb.features import GemmShape, Sequences, key_of
from edgekit.kb.targets.board import load_board

_OTHER = Method(64, 256, 512, True, True, 4, 16)
_FAST, _SLOW = Method(64, 256, 512, True, True, 8, 8), Method(64, 256, 512, False, True, 8, 8)


def measured(method: Method, ratio: float, shape: GemmShape, **changes: object) -> Measurement:
    base = Measurement(
        board="a57",
        platform="cortex-a57",
        dtype="f32",
        threads=1,
        shape=shape,
        method=method,
        cost=ratio * 1e-3,
        default_cost=1e-3,
        spread=0.02,
        when="2026-01-01T00:00:00Z",
        kit_version="0.1.0",
        source="tuner",
    )
    return dataclasses.replace(base, **changes)


_SHAPE = GemmShape(64, 64, 64)
_HISTORY = [
    measured(_SLOW, 0.9, _SHAPE),
    measured(_FAST, 0.7, _SHAPE),
    measured(_FAST, 5.0, _SHAPE),  # a single disturbed run must not decide
    measured(_FAST, 0.75, _SHAPE),
    measured(_SLOW, 0.5, GemmShape(500, 1600, 30)),
    measured(_SLOW, 0.4, _SHAPE, threads=2),
    measured(_SLOW, 0.4, _SHAPE, platform="cortex-a53"),
]


def test_the_best_robust_ratio_wins():
    table = build_table(_HISTORY)
    answer = table.lookup("cortex-a57", _SHAPE, _SLOW)
    assert (answer.method, answer.rule, answer.history_rows) == (_FAST, "exact", 4)
    assert table.lookup("cortex-a57", _SHAPE, _FAST, threads=2).method == _SLOW


def test_a_method_that_is_best_on_one_product_does_not_answer_for_all_of_its_key():
    small, large = GemmShape(96, 96, 96), GemmShape(400, 400, 400)
    alike = dataclasses.replace(_FAST, kc=128)  # same tile as _FAST, tried on the other product
    history = [
        measured(_FAST, 0.5, small),
        measured(_SLOW, 0.8, small),
        measured(alike, 3.0, large),
        measured(_SLOW, 0.8, large),
    ]
    (row,) = build_table(history).rows
    assert (row.method, row.history_rows, row.ratio) == (_SLOW, 4, 0.8)
    untried = [dataclasses.replace(m, method=_OTHER) if m.method == _FAST else m for m in history]
    (row,) = build_table(untried).rows
    assert row.method == _SLOW
    (row,) = build_table(history[:2]).rows
    assert row.method == _FAST


def test_the_radius_of_a_row_is_how_far_it_was_measured():
    board = load_board("a57")
    shapes = [GemmShape(side, side, side) for side in (96, 400)]
    defaults = {shape: analytic_method(board, shape).cut(shape) for shape in shapes}
    history = [
        measured(method, ratio, shape, platform=board.platform)
        for shape in shapes
        for method, ratio in ((_FAST, 0.5), (defaults[shape], 1.0))
    ]
    away = [
        measured(method, ratio, GemmShape(97, 101, m), platform=board.platform)
        for m in range(80, 90)
        for method, ratio in ((_FAST, 2.0), (_SLOW, 0.9))
    ]
    (one,) = (r for r in build_table(history[:2] + away, board=board).rows if r.key.scale == 2)
    assert not one.relaxes and one.radius == 30
    (both,) = (r for r in build_table(history + away, board=board).rows if r.key.scale == 2)
    assert not both.relaxes and both.radius is not None
    assert both.radius > 100 * shapes[0].log_distance(shapes[1])


def test_each_cpu_of_a_class_counts_once():
    old, new = "AuthenticAMD family 26 model 2", "AuthenticAMD family 25 model 17"
    history = [
        *(measured(_FAST, 0.6, _SHAPE, cpu=old, when=f"{i}") for i in range(5)),
        measured(_FAST, 1.1, _SHAPE, cpu=new),
        *(measured(_SLOW, 0.8, _SHAPE, cpu=cpu) for cpu in (old, new)),
    ]
    (row,) = build_table(history).rows
    assert (row.method, row.cpu, row.ratio) == (_SLOW, f"{new}; {old}", 0.8)
    (row,) = build_table(history[:5]).rows
    assert (row.method, row.cpu) == (_FAST, old)


def test_a_row_says_which_cpu_of_a_class_it_comes_from(tmp_path):
    path = tmp_path / "table.json"
    table = build_table([measured(_FAST, 0.6, _SHAPE, cpu="AuthenticAMD family 25 model 17")])
    path.write_text(table_text(table))
    assert load_table(path) == table
    ((group, _),) = json.loads(path.read_text())["groups"]
    assert "AuthenticAMD family 25 model 17" in group
    unnamed = json.loads(table_text(build_table(_HISTORY)))["groups"]
    assert all(group[4:5] in ([], [""]) for group, _ in unnamed)


def test_the_order_of_the_history_changes_no_byte():
    first = table_text(build_table(_HISTORY))
    for seed in range(5):
        shuffled = random.Random(seed).sample(_HISTORY, len(_HISTORY))
        assert table_text(build_table(shuffled)) == first


def test_known_platforms_keep_their_index():
    assert build_table(_HISTORY).platforms == ("cortex-a53", "cortex-a57")
    grown = build_table(_HISTORY, platforms=("u74", "cortex-a57"))
    assert grown.platforms == ("u74", "cortex-a57", "cortex-a53")


def test_a_table_survives_its_file(tmp_path):
    table = build_table(_HISTORY)
    path = tmp_path / "a57.json"
    path.write_text(table_text(table))
    again = load_table(path)
    assert again == table and table_text(again) == path.read_text() and again.skipped == ()
    near = table.with_rows(dataclasses.replace(row, radius=30) for row in table.rows)
    path.write_text(table_text(near))
    assert load_table(path) == near != table


def test_rows_of_another_kit_are_skipped_and_counted(tmp_path):
    content = json.loads(table_text(build_table(_HISTORY)))
    (_, (first, *_)), (other, more), *_ = content["groups"]
    first[3].append(4)  # a method with an extra number
    other += [""] * (5 - len(other)) + ["cortex-a99"]
    path = tmp_path / "new.json"
    path.write_text(json.dumps(content))
    table, whole = load_table(path), len(build_table(_HISTORY).rows)
    assert len(table.skipped) == 1 + len(more) and len(table.rows) == whole - 1 - len(more) > 0


@pytest.mark.parametrize("radius", [-30, 1 << 31])
def test_a_row_whose_radius_cannot_be_is_skipped(radius, tmp_path):
    """Regression: a value too large for its word raised a traceback when the board's table was
    built."""
    content = json.loads(table_text(build_table(_HISTORY)))
    row = content["groups"][0][1][0]
    row += [0] * (7 - len(row)) + [radius]
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(content))
    table = load_table(path)
    assert len(table.skipped) == 1 and len(table.rows) == len(build_table(_HISTORY).rows) - 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("gemm/1", "gemm/3"),
        lambda text: text.replace("gemm/1", "gemm/5"),
        lambda text: text.replace('"tie":"low"', '"tie":"left"'),
        lambda text: text.replace("[3,8,", "[8,3,"),
        lambda text: "[]",
        lambda text: "[" * 100_000,
        lambda text: "",
    ],
)
def test_a_damaged_table_is_one_line(damage, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(damage(table_text(build_table(_HISTORY))))
    with pytest.raises(KnowledgeBaseError) as error:
        load_table(path)
    assert "bad.json" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"cost": float("nan")},
        {"cost": 0.0},
        {"default_cost": float("inf")},
        {"spread": -1.0},
        {"source": "guess"},
        {"unit": "furlongs"},
        {"dtype": "f64"},
        {"threads": 0},
        {"platform": ""},
    ],
)
def test_a_measurement_that_cannot_be_is_refused(changes):
    with pytest.raises(ValueError, match="expected"):
        measured(_FAST, 1.0, _SHAPE, **changes)


def test_without_a_better_method_the_analytic_rule_decides(tmp_path):
    nothing = [measured(_SLOW, 1.0, _SHAPE), measured(_FAST, 0.99, _SHAPE)]
    assert build_table(nothing).rows == ()
    near = [GemmShape(m, 64, 64) for m in (96, 112)]  # where neighbors have a good method
    costs = ((_FAST, 0.5), (_SLOW, 1.0))
    good = [measured(method, ratio, shape) for shape in near for method, ratio in costs]
    table = build_table([*nothing, *good])
    row = table.lookup("cortex-a57", _SHAPE, _SLOW)
    assert (row.rule, row.method, row.history_rows) == ("exact", _SLOW, 2)  # not the neighbor's
    path = tmp_path / "t.json"
    path.write_text(table_text(table))
    assert load_table(path) == table and path.read_text().count("[64,64,64,0,") == 1


def test_an_analytic_rule_that_changed_is_not_taken_for_what_was_measured():
    board = load_board("a57")
    default = analytic_method(board, _SHAPE).cut(_SHAPE)
    other = dataclasses.replace(default, mc=16)
    for method, row in ((default, None), (other, limits_of(other, _SHAPE, board, "f32"))):
        found = build_table([measured(method, 1.0, _SHAPE)], board=board).rows
        assert [each.method for each in found] == ([row] if row else [])


def test_a_file_lists_methods_of_several_rows_once_and_a_group_has_their_usual_radius(tmp_path):
    shapes = [GemmShape(size, 8, 8) for size in (8, 64, 500)]
    methods = [Method(8, 8, 8, False, True, 4, nr) for nr in (8, 8, 16)]
    rows = [
        GemmRow(key_of(s, 0, Sequences()), m, s, "estimate", 1, 0.9, None, False, "", radius)
        for s, m, radius in zip(shapes, methods, (30, 30, None), strict=True)
    ]
    table, file = KnowledgeBase(("p",)).with_rows(rows), tmp_path / "p.json"
    text = table_text(table)
    assert text.count('[8,8,8,"b",4,8]') == 1 and ",30,0]" in text
    file.write_text(text)
    assert load_table(file) == table
    file.write_text(text.replace("[64,8,8,1,", "[64,8,8,2,"))
    (skipped,) = load_table(file).skipped
    assert "expected a method of 0 to 1, found 2" in skipped
