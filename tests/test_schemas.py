"""Documents in JSON: one name has one shape, because one place writes it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.specs import OperatorSpec
from edgekit.host.cli.model_times import measured_document, model_document
from edgekit.host.deploy.release import Benchmark, OperatorTime
from edgekit.host.deploy.release.types import ClockReadings
from edgekit.host.lab.bench.peer_times import PeerTimes
from edgekit.host.simulator.model import ModelEstimate, OperatorEstimate
from edgekit.host.simulator.run import SimulatedCost

_ROOT = Path(__file__).resolve().parents[1]
_NAME = re.compile(r'"(edgekit\.[a-z._]+/[0-9]+)"')


def test_each_name_of_a_document_is_written_by_one_file():
    files: Counter[str] = Counter()
    for folder in ("device", "host", "kb"):
        for path in (_ROOT / folder).rglob("*.py"):
            files.update(set(_NAME.findall(path.read_text())))
    assert [name for name, count in files.items() if count > 1] == []
    assert len(files) > 20


def test_measured_and_estimated_times_have_one_shape():
    """A reader of the one reads the other: what one kind cannot know is null."""
    cost = SimulatedCost(1800, 100, {"issue": 1800})
    spec = OperatorSpec("a", "conv2d", "kernel")
    shapes = {"x": (1, 8)}
    estimate = ModelEstimate(
        *("m", "r", "rpi4", "a72", 1800.0, 1, "int8", cost),
        *((OperatorEstimate(spec, cost),), 0, 64, 32, shapes, 1, None),
    )
    operators = (OperatorTime("a", "conv2d", "kernel", 1.0, 1.0),)
    timing = Benchmark(
        *("r", "m", 1, 1.0, 0.9, 1.1, 5, operators, 64, 32),
        *(ClockReadings(None, None, None), ClockReadings(None, None, None)),
        *(0.5, shapes),
    )
    estimated = model_document(estimate, {"litert": PeerTimes(missing="why").to_json()})
    peers = {"litert": PeerTimes(version="1", ratio=2.0).to_json()}
    for emulated in (False, True):
        measured = measured_document("b", timing, emulated, peers=peers)
        assert _keys(measured) == _keys(estimated)
        known = [k for k in ("latency_ms", "emulated_ms", "estimated_ms") if measured[k]]
        assert known == ["emulated_ms" if emulated else "latency_ms"]
    assert (estimated["latency_ms"], estimated["load_ms"]) == (None, None)


def _keys(document: dict[str, Any]) -> list[list[str]]:
    (operator,) = document["operators"]
    return [list(part) for part in (document, operator, document["peers"]["litert"])]
