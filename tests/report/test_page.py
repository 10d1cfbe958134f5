"""The report page: a single file that loads nothing and escapes all names."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles import ProfileStore
from edgekit.host.report import compile_report, page, trace
from edgekit.host.report.document import ReportedOperator
from edgekit.host.report.explained import explain_operators
from edgekit.host.report.field import field_report
from tests.support.reports import NEW, OLD, Elements, data_of, explanation, fill_store

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

NOW = datetime(2026, 11, 22, 8, 0, tzinfo=UTC)
HOSTILE = '<script>alert("x")</script>&</title>'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))


def report_of(**about: Any) -> Any:
    return field_report(fill_store(**about), NOW)


def test_a_page_loads_nothing() -> None:
    text = page(report_of())
    elements = Elements(text)
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(elements.tags)
    attributes = [name for _, found in elements.found for name in found]
    assert not [name for name in attributes if name in ("src", "srcset", "data", "action")]
    links = [found["href"] for tag, found in elements.found if tag == "a"]
    assert all(link and link.startswith("#") for link in links)
    style, *scripts = (*elements.texts["style"], *elements.texts["script"])
    assert "url(" not in style and "@import" not in style
    code = scripts[-1].replace("http://www.w3.org/2000/svg", "")
    for word in ("http:", "https:", "fetch(", "XMLHttpRequest", "import(", "innerHTML", "eval("):
        assert word not in code


def test_only_the_pages_own_script_and_style_may_run() -> None:
    elements = Elements(page(report_of()))
    policies = [a["content"] or "" for t, a in elements.found if t == "meta" and "http-equiv" in a]
    (policy,) = policies
    for text in (elements.texts["style"][0], elements.texts["script"][-1]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    assert not [name for _, found in elements.found for name in found if name.startswith("on")]


def test_names_of_models_boards_and_operators_cannot_become_elements() -> None:
    plain = Elements(page(report_of()))
    operators = ((HOSTILE, "conv2d", 10), ("{{style}}", "add", 1))
    made = report_of(folder=None, model=HOSTILE, boards=("b",), operators=operators)
    text = page(made)
    assert Elements(text).tags == plain.tags
    subject = next(s for s in data_of(text)["subjects"] if s["model"] == HOSTILE)
    assert [o["name"] for o in subject["releases"][-1]["operators"]] == [o[0] for o in operators]


def test_times_rules_and_runners_up_are_in_one_row() -> None:
    (subject,) = data_of(page(report_of()))["subjects"]
    old, new = subject["releases"]
    assert (old["release"], new["release"], subject["board_type"]) == (OLD, NEW, "a57")
    first, side, last = new["operators"]
    assert first["times"]["median"] == pytest.approx(400 * 1.1 * 1.035, rel=0.01)
    assert first["estimate_us"] == 400 and new["estimate_us"] == 550
    assert new["estimated_by"] == "the compiler's cost model"
    assert (first["rule"], first["method"]) == ("analytic", "in_place 6x8 f32")
    assert first["runner_up"] == "in_place 4x8 f32, 1.25 × its cost"
    assert side["runner_up"] is None and side["times"] is not None
    assert new["edges"] == [[0, 1], [0, 2], [1, 2]] and new["explained"]
    assert [o["row"] for o in (first, side, last)] == [0, 1, 2]
    assert not old["explained"] and old["operators"][0]["rule"] is None
    assert old["whole"]["median"] / new["whole"]["median"] == pytest.approx(1.25, rel=0.01)


def test_boards_are_listed_slowest_first_with_their_own_times() -> None:
    (subject,) = data_of(page(report_of()))["subjects"]
    boards = subject["releases"][-1]["boards"]
    assert [b["board"] for b in boards] == ["west", "north", "east"]
    assert [b["throttled"] for b in boards] == [1.0, 0.0, 0.0]
    assert boards[2]["operators"][0] == pytest.approx(400 * 1.035, rel=0.01)
    assert boards[0]["temperature_c"] == 50.0 and boards[0]["batches"] == 8


@pytest.mark.parametrize("board_type", ["local", "x86-64-v4", "unheard-of"])
def test_boards_whose_time_nobody_can_estimate_are_reported(board_type: str) -> None:
    (subject,) = report_of(board_type=board_type).subjects
    assert subject.board_type == board_type
    assert subject.releases[-1].estimated_by == "the compiler's cost model"


def test_an_empty_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected profiles to report, found none; fetch some"):
        field_report(ProfileStore(tmp_path / "empty"), NOW)


def test_what_has_no_room_is_counted() -> None:
    made = field_report(fill_store(), NOW, most_releases=1, most_cells=6)
    assert made.left_out == ("1 older releases of tiny",)
    (release,) = made.subjects[0].releases
    assert [len(board.operators) for board in release.boards] == [3, 3, 0]


def test_what_the_compiler_expects_is_a_page_without_measurements() -> None:
    (subject,) = data_of(page(compile_report(NEW, "a57", [explanation()], NOW)))["subjects"]
    (release,) = subject["releases"]
    assert release["whole"] is None and release["estimate_us"] == 550
    assert [o["times"] for o in release["operators"]] == [None] * 3


def test_what_is_done_for_nothing_is_no_gap_in_the_graph() -> None:
    """Boards do not measure no-ops such as reshapes; edges skip over them."""
    explained = explain_operators(
        [ReportedOperator("first", "conv2d", "k"), ReportedOperator("last", "conv2d", "k")],
        explanation(),
        None,
    )
    assert explained.edges == ((0, 1),)
    assert explained.operators[1].row == 1


def test_a_trace_is_one_operator_after_the_other() -> None:
    document = json.loads(trace(report_of()))
    spans = [e for e in document["traceEvents"] if e["ph"] == "X" and e["tid"] == 2]
    assert [e["name"] for e in spans] == ["first", "side", "last"]
    assert spans[1]["ts"] == pytest.approx(spans[0]["dur"])
    assert spans[0]["args"]["runner_up"] == "in_place 4x8 f32, 1.25 × its cost"
    names = [e["args"]["name"] for e in document["traceEvents"] if e["ph"] == "M"]
    assert names[0] == "tiny on a57, 1 thread" and NEW in names[2]


def test_the_pages_texts_are_ascii_but_for_signs_that_people_read() -> None:
    folder = Path(__file__).parents[2] / "host" / "report" / "web"
    odd = {c for path in folder.iterdir() for c in re.findall(r"[^\x00-\x7f]", path.read_text())}
    assert odd <= set("µ–−×°…")
