"""`edgekit lab tune model --orders`: measured orders are stored and used by the next compile.

A fake clock replaces measurements that would take minutes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.version import VERSION
from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tables.orders import user_order_table
from edgekit.host.lab.history.store import History
from edgekit.host.lab.tune.model_session import ModelSearch
from edgekit.kb.targets.board import load_board
from tests.support.lab_app import lab_with
from tests.support.order_clockwork import OrderClockwork

pytestmark = pytest.mark.slow

_BOARD = "rpi3"


@pytest.fixture
def small(face_model: Path) -> Path:
    """A model with many valid orders."""
    return face_model.with_name("okay_nabu.tflite")


@pytest.fixture
def tune(edgekit: Any, small: Path) -> Callable[..., Any]:
    app = lab_with(ModelSearch(orders=OrderClockwork))
    OrderClockwork.left = 1000
    command = ("lab", "tune", "model", small, "--board", _BOARD, "--orders", "8")
    return lambda *shown: edgekit(*command, *(shown or ("--json",)), app=app)


@pytest.fixture
def explained(edgekit: Any, small: Path, home: Path) -> Callable[..., Any]:
    def explain(*more: str) -> Any:
        command = ("compile", small, "--board", _BOARD, "-o", "small.ekb")
        assert edgekit(*command, "--explain", "why.json", *more).code == 0
        return json.loads((home / "why.json").read_text())

    return explain


def _shown(story: Any) -> list[str]:
    return [part["why"] for part in story["subgraphs"]]


def test_the_next_compile_runs_the_best_order_and_says_why(
    tune: Any, explained: Any, edgekit: Any
) -> None:
    searched = explained()
    assert set(_shown(searched)) == {"searched"}
    done = tune()
    assert done.code == 0, done.err
    found = done.document
    assert found["schema"] == "edgekit.tune.order/1" and found["estimated"]
    times = {o["origin"]: o["measured_us"] for o in found["orders"]}
    together = "the best of each subgraph"
    assert times[together] == min(times.values()) < times["search"]
    (best,) = (o["order"] for o in found["orders"] if o["origin"] == together)
    story = explained()
    assert story["order"] == best != searched["order"]
    measured = [why for why in _shown(story) if why.startswith("measured: ")]
    assert len(measured) == len(found["kept"]) > 0
    assert all(f"(estimate on {_BOARD}, " in why and f"kit {VERSION}" in why for why in measured)

    Path(found["table"]).unlink()  # without the table, the searched order applies
    assert explained()["order"] == searched["order"]
    done = edgekit("lab", "kb", "build", "--board", _BOARD)
    assert Path(found["table"]).exists() and explained()["order"] == best


def test_every_measurement_is_in_the_history(tune: Any) -> None:
    found = tune().document
    with History() as history:
        rows = history.read_orders("cortex-a53").measurements
    assert {(r.board, r.source, r.unit, r.kit_version) for r in rows} == {
        (_BOARD, "estimate", "cycles", VERSION)
    }
    assert {r.ratio for r in rows if r.order == r.searched} == {1.0}
    ratios = {r.part: r.ratio for r in rows if r.ratio < 1}
    assert {each["part"] for each in found["kept"]} <= set(ratios)


@pytest.mark.exhaustive
def test_orders_that_were_asked_for_are_not_replaced(tune: Any, explained: Any) -> None:
    ways = ("import", "memory")
    before = {way: explained("--order", way)["order"] for way in ways}
    assert tune().code == 0
    assert {way: explained("--order", way)["order"] for way in ways} == before


def test_a_measured_order_that_needs_too_much_memory_is_not_taken(tune: Any, small: Path) -> None:
    board = load_board(_BOARD)
    graph = prepare(small, board).graph

    def planned(limit: int) -> tuple[int, list[str]]:
        scheduled, plan = plan_of(graph, board, CompileOptions(memory_limit=limit))
        return plan.memory.arena_bytes + plan.state_bytes, [p.why for p in scheduled.subgraphs]

    searched, _ = planned(1 << 30)
    done = tune("--allow-noise")
    assert done.code == 0 and "estimated µs" in done.out
    need, shown = planned(1 << 30)
    assert need > searched and any(why.startswith("measured: ") for why in shown)
    found, shown = planned(need - 1)
    assert found == searched
    assert all(f"an arena of {need} bytes, more than {need - 1}" in why for why in shown)


def test_a_measured_order_of_another_search_is_named_and_not_taken(
    tune: Any, explained: Any
) -> None:
    table = Path(tune().document["table"])
    text = json.loads(table.read_text())
    for row in text["rows"]:
        row["searched"] = row["order"]
    table.write_text(json.dumps(text))
    shown = [why for why in _shown(explained()) if why != "searched"]
    assert shown and all("measure again: edgekit lab tune model --orders 6" in why for why in shown)


def test_a_board_that_vanishes_loses_nothing(tune: Any) -> None:
    OrderClockwork.left = 1
    done = tune()
    assert done.code == 3 and "here" in done.complaint
    with History() as history:
        assert history.read_orders().measurements


def test_a_damaged_table_is_one_line(edgekit: Any, small: Path) -> None:
    table = user_order_table(load_board(_BOARD))
    table.parent.mkdir(parents=True)
    for text in ("{", '{"schema": "x/1", "platform": "y", "rows": []}'):
        table.write_text(text)
        done = edgekit("compile", small, "--board", _BOARD)
        assert done.code == 2 and f"edgekit lab kb build --board {_BOARD}" in done.complaint


@pytest.mark.exhaustive
def test_orders_run_in_turns_and_the_best_is_written(edgekit: Any, small: Path) -> None:
    options = ("--orders", "2", "-o", "best.ekb", "--json")
    done = edgekit("lab", "tune", "model", small, *options, "--allow-noise")
    assert done.code == 0
    found = done.document["orders"]
    times = [order["measured_us"] for order in found]
    assert times == sorted(times) and {o["origin"] for o in found} >= {"search"}
    assert sorted(found[0]["order"]) == sorted(found[-1]["order"])
    assert edgekit("deploy", "best.ekb", "--dry-run").code == 0
    with History() as history:
        rows = history.read_orders().measurements
    assert {(r.source, r.unit) for r in rows} == {("tuner", "seconds")}


def test_the_order_of_a_bundle_cannot_be_tuned(edgekit: Any, home: Path) -> None:
    (home / "small.ekb").write_bytes(b"PK\x03\x04")
    done = edgekit("lab", "tune", "model", "small.ekb", "--orders", "2")
    assert done.code == 2 and "found a bundle" in done.complaint


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("-o", "best.ekb"), "expected --orders with --output, found none"),
        (("--orders", "2", "--budget", "5m"), "expected --budget or --orders, found both"),
        (("--orders", "2", "--board", "rpi4,rpi5"), "expected one --board with --orders"),
    ],
)
def test_options_that_do_not_go_together(
    edgekit: Any, small: Path, options: tuple[str, ...], complaint: str
) -> None:
    done = edgekit("lab", "tune", "model", small, *options)
    assert done.code == 2 and complaint in done.complaint
