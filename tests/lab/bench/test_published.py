"""Published times of engines: the file of facts, what is estimated for each, and what counts."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from edgekit.host.errors import InputError
from edgekit.host.lab.bench.board_peers import PeerEstimate
from edgekit.host.lab.bench.published import (
    EngineResult,
    PublishedTime,
    compare,
    read_published,
    summary,
)
from edgekit.kb.targets.board import load_board

_FILE = Path(__file__).parents[3] / "docs" / "results" / "published_engines.csv"
_HEAD = "engine,network,precision,profile,clock_mhz,threads,milliseconds"


def row(threads: int = 4, ms: float = 10.0, engine: str = "XNNPACK") -> PublishedTime:
    return PublishedTime(engine, "mobilenet-v1", "int8", "rpi4", 1500, threads, ms)


def result(estimated: float, published: PublishedTime) -> EngineResult:
    found = PeerEstimate("litert", "2", milliseconds=estimated)
    return EngineResult(published, published.threads, found)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A model file, with a cache of its own."""
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    path = tmp_path / "m.tflite"
    path.write_bytes(b"....TFL3")
    return path


def test_the_published_facts_are_well_formed():
    rows = read_published(_FILE)
    assert len(rows) >= 40 and any(not each.threads_known for each in rows)
    assert {load_board(each.profile).name for each in rows if each.profile} >= {"rpi4", "rpi5"}
    named = [
        (r.engine, r.network, r.precision, r.profile, r.clock_mhz, r.milliseconds) for r in rows
    ]
    assert len(set(named)) == len(rows)


def test_each_published_time_says_whether_it_can_be_compared():
    with _FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(row["comparable"].startswith(("yes", "no: ")) for row in rows)
    assert all(each["command"] and each["commit"] for each in rows)
    named = ("engine", "network", "precision")
    compared = {tuple(row[k] for k in named) for row in rows if row["comparable"][:3] == "yes"}
    with (_FILE.parent / "validation_engines.csv").open(encoding="utf-8", newline="") as file:
        estimated = {tuple(row[k] for k in named) for row in csv.DictReader(file)}
    assert estimated <= compared


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("XNNPACK,v1,int4,rpi4,1500,4,24", "row 1: precision 'int4'"),
        ("XNNPACK,v1,int8,rpi4,1500,4,0", "0.0 ms"),
        ("XNNPACK,v1,int8,rpi4,1500,all,24", "'all'"),
    ],
)
def test_a_malformed_row_is_refused(tmp_path, line, found):
    path = tmp_path / "published.csv"
    path.write_text(f"{_HEAD}\n{line}\n")
    with pytest.raises(InputError, match="expected published times") as caught:
        read_published(path)
    assert found in str(caught.value)


def test_an_estimate_is_of_the_published_clock_and_threads_and_kept(place):
    asked = []

    def peer(name, job, _tell):
        asked.append((name, job.target.core.name, job.target.core.clock_mhz, job.threads))
        return PeerEstimate(name, "2.3", milliseconds=8.0)

    for _ in range(2):
        (found,) = compare(row(), place, str, peer, lambda: "plugin")
    assert asked == [("litert", "a72", 1500, 4)]
    assert found.nearest
    record = found.record()
    assert (record["estimated_ms"], record["published_ms"], record["ratio"]) == ("8", "10", "0.80")
    assert record["threads_known"] == "yes"


def test_without_known_threads_one_and_four_are_tried_and_the_nearest_is_named(place):
    def peer(name, job, _tell):
        return PeerEstimate(name, "2.3", milliseconds=32.0 / job.threads)

    found = compare(row(threads=0), place, str, peer, lambda: "plugin")
    assert [(each.threads, each.nearest) for each in found] == [(1, False), (4, True)]
    assert {each.record()["threads_known"] for each in found} == {"no"}
    assert summary(found) == []


def test_a_failure_is_tried_again_and_does_not_count(place):
    answers = [PeerEstimate("litert", missing="crashed"), PeerEstimate("litert", milliseconds=9.0)]
    first, second = (
        compare(row(), place, str, lambda *_: answers.pop(0), lambda: "plugin") for _ in range(2)
    )
    assert summary(first) == []
    assert summary(second)[0]["median_percent"] == "10"


def test_errors_leave_out_rows_without_known_threads():
    told = [result(11, row(ms=10)), result(9, row(ms=12)), result(30, row(ms=20))]
    untold = [result(1000, row(threads=0))]
    (found,) = summary([*told, *untold])
    assert found == {
        "engine": "XNNPACK",
        "precision": "int8",
        "board": "rpi4",
        "threads": "4",
        "networks": "3",
        "median_percent": "25",
        "worst_percent": "50",
        "kendall_tau": "0.33",
    }
