"""Reporting estimates: with the error found by validation, or marked as not validated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.host.simulator.report import bound_text, error_document, proof_text, sentence
from edgekit.host.simulator.run import SimulatedCost
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board
from edgekit.kb.targets.core import FOLDER, CoreError, parse_core
from edgekit.kb.targets.core_parts import Validation

_FLOAT = Validation("float", 1, 18, 6.4, 21.0, "Raspberry Pi 4B (ncnn)", "2026-11-22")
_THREADS = replace(_FLOAT, threads=4, median_percent=14.0)
_TABLE = """
[[validation]]
kind = "float"
threads = 1
networks = 18
median_percent = 6.4
worst_percent = 21.0
against = "Raspberry Pi 4B (ncnn)"
date = "2026-11-22"
"""


def a72() -> str:
    text = (Path(FOLDER) / "a72.toml").read_text(encoding="utf-8")
    return text.partition("[[validation]]")[0]


def test_a_time_is_shown_with_the_median_error():
    assert sentence(12.34, "rpi4", _FLOAT) == "estimated 12.3 ms ± 6% on rpi4"
    assert sentence(1234.5, "rpi4", None) == "estimated 1234 ms (not validated) on rpi4"


def test_the_whole_proof_names_networks_and_boards():
    said = "median 6%, worst 21% of 18 float networks on Raspberry Pi 4B (ncnn) (2026-11-22)"
    assert proof_text(_FLOAT) == said
    assert error_document(_FLOAT)["error"]["networks"] == 18
    assert error_document(None) == {"validated": False, "error": None}


def test_the_error_is_that_of_the_kind_of_network_and_of_threads():
    target = target_of(load_board("rpi4"))
    core = replace(target.core, validation=(_FLOAT, _THREADS))
    target = replace(target, core=core)
    assert target.proof("float", 1) == _FLOAT
    assert target.proof("float", 2) == _THREADS
    assert target.proof("int8", 1) is None


def test_limits_of_a_region_are_listed_largest_first():
    cost = SimulatedCost(100, 50, {"dram": 25, "unit:vector": 60, "branch": 15})
    assert bound_text(cost) == "vector unit 60%, DRAM 25%, branches 15%"
    assert bound_text(SimulatedCost(100, 50, {"issue": 91, "l2": 9})) == "issue 91%"


def test_a_core_tells_its_validation():
    assert parse_core("a72", a72() + _TABLE).validation == (_FLOAT,)


def test_a_validation_of_an_unknown_kind_is_refused():
    with pytest.raises(CoreError, match="expected float or int8, found 'f16'"):
        parse_core("a72", a72() + _TABLE.replace('"float"', '"f16"'))
