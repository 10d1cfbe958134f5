"""`edgekit profile report`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.fleet.profiles import ProfileStore
from tests.support.profile_batches import field_batch
from tests.support.reports import data_of, fill_store

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

MODEL = str(Path(__file__).parents[2] / "models" / "okay_nabu.tflite")


def test_a_report_and_a_trace_are_written(edgekit: Any, home: Path) -> None:
    fill_store()
    done = edgekit("profile", "report", "--trace", "trace.json")
    assert done.code == 0 and done.out.startswith("wrote    report.html")
    assert "models 1, releases 2" in done.out
    (subject,) = data_of((home / "report.html").read_text())["subjects"]
    assert subject["model"] == "tiny"
    assert json.loads((home / "trace.json").read_text())["traceEvents"]
    document = edgekit("profile", "report", "-o", "other.html", "--json").document
    assert (document["file"], document["models"], document["trace"]) == ("other.html", 1, None)


def test_a_report_of_the_fleet_counts_boards(edgekit: Any, home: Path) -> None:
    fill_store()
    text = '[boards.{}]\nprofile = "a57"\nhost = "{}"\n'
    (home / "edgekit.toml").write_text("".join(text.format(n, n) for n in ("east", "asleep")))
    done = edgekit("profile", "report", "--fleet")
    assert "fleet    boards 3, stragglers 0, silent 1" in done.out
    fleet = data_of((home / "report.html").read_text())["fleet"]
    assert fleet["missing"] == ["asleep"]
    document = edgekit("profile", "report", "--fleet", "--json").document
    assert document["fleet"]["groups"][0]["boards"] == 3
    assert edgekit("profile", "report", "--json").document["fleet"] is None


def test_a_report_tells_how_a_release_agrees_with_its_float_model(edgekit: Any, home: Path) -> None:
    fill_store()
    release = data_of(_page(edgekit, home))["subjects"][0]["releases"][-1]["release"]
    wide = 2 * np.ones(9, np.float32)
    ProfileStore().add("east", field_batch(9000, 40, 38, release=release, hidden=wide))
    done = edgekit("profile", "report")
    assert "compared by" in done.out
    assert [line.split()[:6] for line in done.out.splitlines() if line.startswith(release)] == [
        [release, "tiny", "difference", "0.9500", "40", "1"],
        [release, "hidden", "2", "to", "2", "-1"],
    ]
    newest = data_of((home / "report.html").read_text())["subjects"][0]["releases"][-1]
    assert newest["note"].startswith("38 of 40 repeated inferences agree with the float model")
    assert newest["note"].endswith("Values leave the release's ranges in hidden.")


def _page(edgekit: Any, home: Path) -> str:
    assert edgekit("profile", "report").code == 0
    return (home / "report.html").read_text()


def test_a_report_of_nothing_is_one_line_and_no_file(edgekit: Any, home: Path) -> None:
    done = edgekit("profile", "report")
    assert done.code == 2
    assert "expected profiles to report, found none; fetch some" in done.complaint
    assert not (home / "report.html").exists()


def test_a_page_that_cannot_be_written_is_named(edgekit: Any) -> None:
    fill_store()
    done = edgekit("profile", "report", "-o", "missing/report.html")
    assert (done.code, done.complaint.count("expected its folder to exist")) == (2, 1)


@pytest.mark.slow
def test_a_benchmark_and_a_compilation_are_pages_of_the_same_kind(edgekit: Any, home: Path) -> None:
    done = edgekit("compile", MODEL, "-o", "m.ekb", "--html", "expected.html")
    assert done.code == 0
    expected = data_of((home / "expected.html").read_text())
    assert expected["source"] == "compile"
    (release,) = expected["subjects"][0]["releases"]
    assert release["whole"] is None and release["explained"] and release["estimate_us"] > 0
    assert any(operator["rule"] for operator in release["operators"])

    arguments = ("--runs", "3", "--html", "bench.html", "--trace", "bench.json", "--json")
    measured = edgekit("bench", "model", "m.ekb", *arguments).document
    (subject,) = data_of((home / "bench.html").read_text())["subjects"]
    (timed,) = subject["releases"]
    assert (timed["release"], timed["explained"]) == (measured["release"], True)
    assert timed["whole"]["median"] == pytest.approx(1e3 * measured["latency_ms"]["median"])
    known = {o["name"]: o["rule"] for o in release["operators"]}
    assert all(o["rule"] == known[o["name"]] for o in timed["operators"] if o["name"] in known)
    spans = [e for e in json.loads((home / "bench.json").read_text())["traceEvents"] if "dur" in e]
    assert [s["name"] for s in spans] == [o["name"] for o in measured["operators"]]


def test_estimates_of_other_engines_are_no_page(edgekit: Any) -> None:
    done = edgekit("bench", "model", MODEL, "--peers", "--board", "rpi4", "--html", "x.html")
    assert (done.code, done.complaint.count("found --peers on rpi4")) == (2, 1)


def test_a_page_does_not_replace_the_model(edgekit: Any) -> None:
    done = edgekit("compile", MODEL, "-o", "m.ekb", "--html", MODEL)
    assert (done.code, done.complaint.count("found the model")) == (2, 1)


def test_a_slower_release_fails_where_that_is_asked_for(edgekit: Any) -> None:
    fill_store()
    faster = edgekit("profile", "compare", "aaaa", "bbbb", "--fail-above", "5%")
    assert faster.code == 0 and "2 boards that ran both" in faster.out
    assert "-20.0%" in faster.out
    assert edgekit("profile", "compare", "bbbb", "aaaa").code == 0
    slower = edgekit("profile", "compare", "bbbb", "aaaa", "--fail-above", "5%", "--json")
    assert (slower.code, slower.document["limit"]) == (9, 0.05)
    assert slower.document["slower"][0] == "inference"
    assert "to take at most 5% longer" in slower.complaint
    odd = edgekit("profile", "compare", "bbbb", "aaaa", "--fail-above", "much")
    assert (odd.code, odd.complaint.count("expected a percentage such as 5%")) == (2, 1)
