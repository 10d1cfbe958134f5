"""Diagnosing a model's time from board measurements, with valid advice."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from edgekit.device.runtime.agent.hotspots import ThreadHotspots, ThreadTime
from edgekit.device.runtime.agent.threads import OtherProgram
from edgekit.host.cli.app import app
from edgekit.host.cli.meant import command_tree
from edgekit.host.deploy.release import Benchmark, ModelHotspots, OperatorTime
from edgekit.host.deploy.release.types import ClockReadings, Noise
from edgekit.host.lab.bench.advice import BenchTarget
from edgekit.host.lab.bench.hotspots import ProgramVerdict, estimated, judge
from edgekit.kb.targets.board import load_board

_BUSY = ThreadTime(99.0, 0.5, 0.5, 900, 5.0)
_SEEN = ThreadHotspots(
    *("perf_event_open", (_BUSY,), (), (), (), 0.0, 3.0, 0.0),
    *({"wa": 0, "b": 0, "si": 0, "so": 0}, ()),
)
_CLOCK = ClockReadings("schedutil", None, None)
_MB = 1 << 20


def _timing(*medians: float, threads: int = 1, **changes: Any) -> Benchmark:
    """Operators op0, op1, ... with these times in µs; 64 MB of weights exceed any cache."""
    total = sum(medians)
    operators = tuple(
        OperatorTime(f"op{i}", "conv2d", "ek_f32_conv", us, us / total)
        for i, us in enumerate(medians)
    )
    ms = total / 1e3
    made = Benchmark(
        *("r", "m", threads, ms, ms, ms, 100, operators, _MB, 64 * _MB, _CLOCK, _CLOCK),
        noise=Noise(4, 0.0, False, 0.1),
    )
    return replace(made, **changes)


def _made(name: str, size: int, products: int, precision: str = "f32", op: str = "conv2d") -> Any:
    return {
        "name": name,
        "op": op,
        "precision": precision,
        "bytes": size,
        "constant_bytes": size // 4 * 3,
        "multiply_adds": products,
    }


def _judge(
    timing: Benchmark, *made: Any, seen: ThreadHotspots = _SEEN, board: str = "rpi4"
) -> ProgramVerdict:
    explained = {"operators": list(made)} if made else None
    target = BenchTarget("m.tflite", "pi", load_board(board), explained)
    return judge(timing, ModelHotspots(seen, 4e9), target)


def _check_advice(text: str) -> None:
    """Checks that commands and options in the advice exist."""
    for command in re.findall(
        r"edgekit ((?:bench|tune|quantize|prune|compile|doctor|estimate)[^;,]*)", text
    ):
        words = command.split()
        found: Any = command_tree(app)
        while hasattr(found, "commands"):
            found = found.commands[words.pop(0)]
        options = {name for each in found.params for name in each.opts}
        assert {w for w in words if w.startswith("--")} <= options, command
    assert "edgekit" in text or "stop" in text


_PRODUCT = _made("op0", 100_000, 8_000_000)
_CASES: dict[str, tuple[ProgramVerdict, str, str]] = {
    "others": (
        _judge(
            _timing(1000, threads=4, noise=Noise(4, 2.0, False, 3)),
            _PRODUCT,
            seen=replace(
                _SEEN,
                threads=(replace(_BUSY, running=60.0, delayed=39.5), _BUSY, _BUSY, _BUSY),
                others=(OtherProgram(77, "chromium", 180.0),),
            ),
        ),
        "others",
        "stop chromium (process 77); or leave a core free: "
        "edgekit bench model m.tflite --board pi --threads 2",
    ),
    "heat": (
        _judge(_timing(1000, noise=Noise(4, 0, True, 0)), _PRODUCT),
        "heat",
        "edgekit doctor --board pi",
    ),
    "clock": (
        _judge(_timing(1000, after=ClockReadings("powersave", 600, None)), _PRODUCT),
        "clock",
        "edgekit doctor --board pi",
    ),
    "swap": (
        _judge(_timing(1000), _PRODUCT, seen=replace(_SEEN, waiting={**_SEEN.waiting, "so": 9})),  # type: ignore[dict-item]
        "memory",
        "--memory-limit",
    ),
    "pages": (
        _judge(_timing(1000), _PRODUCT, seen=replace(_SEEN, major_faults=80.0)),
        "memory",
        "--memory-limit",
    ),
    "disk": (
        _judge(
            _timing(1000),
            _PRODUCT,
            seen=replace(
                _SEEN, threads=(replace(_BUSY, running=30),), waiting={**_SEEN.waiting, "wa": 60}
            ),  # type: ignore[dict-item]
        ),
        "io",
        "edgekit doctor",
    ),
    "memory, half": (
        _judge(_timing(1000), _made("op0", 3_600_000, 900_000), board="rk3588"),
        "memory",
        "edgekit bench model m.tflite --board pi --precision f16",
    ),
    "memory, weights": (
        _judge(_timing(1000), _made("op0", 3_600_000, 900_000, op="fully_connected")),
        "memory",
        "--weights int8",
    ),
    "memory, fewer weights": (
        _judge(_timing(1000), _made("op0", 3_600_000, 900_000)),
        "memory",
        "; or prune weights: edgekit prune m.tflite --samples samples.npz --board pi",
    ),
    "memory, floats": (
        _judge(_timing(1000), _made("op0", 3_600_000, 900_000)),
        "memory",
        "edgekit quantize m.tflite --samples samples.npz --board pi",
    ),
    "memory, 8 bits": (
        _judge(_timing(1000), _made("op0", 3_600_000, 900_000, "s8")),
        "memory",
        "--order memory",
    ),
    "waiting": (
        _judge(
            _timing(1000, threads=4),
            _PRODUCT,
            seen=replace(_SEEN, threads=(_BUSY, *[replace(_BUSY, running=30, asleep=69.5)] * 3)),
        ),
        "waiting",
        "edgekit bench model m.tflite --board pi --threads 2",
    ),
    "overhead": (
        _judge(_timing(*[3.0] * 20, threads=2), seen=replace(_SEEN, threads=(_BUSY, _BUSY))),
        "overhead",
        "--threads 1",
    ),
    "compute, a core": (_judge(_timing(1000), _PRODUCT), "compute", "--threads 2"),
    "compute, half": (
        _judge(_timing(1000, noise=None), _made("op0", 9000, 30_000_000), board="rk3588"),
        "compute",
        "--precision f16",
    ),
    "compute, floats": (
        _judge(_timing(1000, noise=None), _PRODUCT),
        "compute",
        "edgekit quantize m.tflite --samples samples.npz --board pi",
    ),
    "compute, fewer weights": (
        _judge(_timing(1000, noise=None), _PRODUCT),
        "compute",
        "; or prune weights: edgekit prune m.tflite --samples samples.npz --board pi",
    ),
    "kernel": (
        _judge(_timing(1000, 900), _PRODUCT, _made("op1", 100_000, 80_000_000)),
        "kernel",
        "edgekit lab tune model m.tflite --board pi",
    ),
    "unknown": (_judge(_timing(1000)), "unknown", "edgekit bench model m.tflite --board pi"),
}


@pytest.mark.parametrize("case", _CASES)
def test_each_reason_has_its_advice(case: str) -> None:
    verdict, kind, advice = _CASES[case]
    assert (verdict.kind, advice in verdict.advice) == (kind, True), verdict
    for text in (verdict.advice, *(operator.advice for operator in verdict.operators)):
        _check_advice(text)


def test_rates_are_those_of_the_figures() -> None:
    verdict = _judge(
        _timing(1000, 500), _made("op0", 400_000, 8_000_000), _made("op1", 1, 8_000_000)
    )
    first, second = verdict.operators
    assert first.of_memory == pytest.approx(0.1) and first.of_products == pytest.approx(0.5)
    assert second.of_products == pytest.approx(1) and "that of op1" in first.why


def test_what_stays_in_a_cache_is_not_bound_by_memory() -> None:
    small = _timing(1000, arena_bytes=1000, weights_bytes=1000)
    verdict = _judge(small, _made("op0", 3_600_000, 900_000))
    assert verdict.kind == "compute" and verdict.operators[0].of_memory is None


def test_no_samples_no_claim_of_waiting() -> None:
    """Without samples, working and spinning threads cannot be distinguished."""
    idle = replace(_BUSY, samples=0, running=10.0, asleep=89.5)
    seen = replace(_SEEN, sampler="", threads=(replace(_BUSY, samples=0), idle))
    assert _judge(_timing(1000, threads=2), _PRODUCT, seen=seen).kind == "compute"


def test_an_emulated_board_shows_its_estimate() -> None:
    target = BenchTarget("m.tflite", "a57", load_board("a57"), None)
    verdict = estimated(None, target)
    assert verdict.kind == "emulated" and "edgekit estimate m.tflite --board a57" in verdict.advice
    _check_advice(verdict.advice)


@pytest.mark.parametrize(
    "made",
    [
        _made("op0", 3_600_000, 900_000, op="depthwise_conv2d"),  # no sparse kernel
        {**_made("op0", 3_600_000, 900_000), "constant_bytes": 40_000},  # traffic is mostly images
        _made("op0", 3_600_000, 900_000, "s8"),  # only floats are pruned
    ],
    ids=["depthwise", "few weights", "8 bits"],
)
def test_pruning_is_named_only_where_it_helps(made: Any) -> None:
    assert "edgekit prune" not in _judge(_timing(1000), made).advice
