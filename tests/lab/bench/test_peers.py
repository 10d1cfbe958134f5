"""The harness, with LiteRT against itself: checks the measurement without a compiled model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.errors import InputError
from edgekit.host.lab.bench.peer_times import PeerTimes
from edgekit.host.lab.bench.peers import ContenderSpec, PeerResult, compare_latency
from edgekit.host.lab.bench.process import Worker

pytestmark = pytest.mark.peers

_MODELS = Path(__file__).parents[3] / "models"
_MODEL = _MODELS / "face_detection_short_range.tflite"


def _contender(name: str, kind: str) -> ContenderSpec:
    return ContenderSpec(name, kind, _MODEL)


@pytest.fixture(scope="module")
def result() -> PeerResult:
    others = [
        _contender("slow", "litert:reference"),
        _contender("absent", "tflite-runtime:nosuch"),
    ]
    return compare_latency(_contender("ours", "litert:xnnpack"), others, threads=1, runs=5)


@pytest.mark.slow
def test_a_slower_contender_has_a_ratio_above_one(result):
    slow = result.peers[0]
    assert slow.ratio > 2
    assert slow.latency.median > 2 * result.ours.median
    assert slow.ratio_p10 <= slow.ratio <= slow.ratio_p90
    assert slow.latency.p10 <= slow.latency.median <= slow.latency.p90
    assert min(slow.latency.n, result.ours.n) >= 5


def test_a_missing_peer_is_reported(result):
    absent = result.peers[1]
    assert absent.latency is None
    assert result.to_json()["absent"] == PeerTimes(missing=absent.missing).to_json()


def test_the_document_names_each_peer_with_latency_and_ratio(result):
    entry = result.to_json()["slow"]
    assert set(entry["latency_ms"]) == {"median", "p10", "p90", "n"}
    assert entry["ratio"] == result.peers[0].ratio


def test_more_threads_than_cores_are_refused():
    with pytest.raises(InputError, match="threads on this machine, found 10000"):
        compare_latency(_contender("ours", "litert:xnnpack"), [], threads=10000, runs=1)


def test_a_model_that_no_engine_reads_is_one_line(tmp_path):
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(b"not a model")
    with pytest.raises(InputError, match=r"^litert:builtin: ") as caught:
        Worker("litert:builtin", broken)
    assert "\n" not in str(caught.value)


def test_state_is_reset_between_sequences(tmp_path):
    rng = np.random.default_rng(0)
    sequence = rng.integers(-128, 128, (6, 1, 3, 40)).astype(np.int8)
    np.savez(tmp_path / "in.npz", in0=np.concatenate([sequence, sequence]))
    with Worker("litert:reference", _MODELS / "okay_nabu.tflite") as worker:
        assert worker.stateful
        worker.run(tmp_path / "in.npz", tmp_path / "out.npz", steps=6)
    with np.load(tmp_path / "out.npz") as stored:
        first, second = stored["out0"][:6], stored["out0"][6:]
    assert (first == second).all()


def test_workers_are_pinned():
    core = max(os.sched_getaffinity(0))
    with Worker("litert:builtin", _MODEL, cpus=(core,)) as worker:
        assert os.sched_getaffinity(worker.pid) == {core}


def test_a_model_is_found_from_wherever_an_engine_looks(tmp_path, monkeypatch):
    """Some engines convert in their own folder, where a relative path would be invalid."""
    monkeypatch.chdir(_MODELS)
    with Worker("litert:builtin", Path(_MODEL.name)) as worker:
        arguments = Path(f"/proc/{worker.pid}/cmdline").read_text().split("\0")
    assert str(_MODEL) in arguments
