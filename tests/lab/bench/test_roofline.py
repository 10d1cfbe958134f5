"""What bounds the operators of an estimate, and the peak of cores that they are compared with."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.device.runtime.agent.specs import OperatorSpec
from edgekit.host.lab.bench.advice import BenchTarget
from edgekit.host.lab.bench.roofline import HotOperator, judge_operators, peak_products
from edgekit.host.simulator.model import ModelEstimate, OperatorEstimate
from edgekit.host.simulator.run import SimulatedCost
from edgekit.kb.targets.board import load_board


@pytest.mark.parametrize(
    ("board", "dtype", "products"),
    [
        ("rpi3", "f32", 4),  # Arm: eight floating operations a cycle
        ("rpi3", "s8", 8),
        ("rk3566", "f16", 8),
        ("rpi5", "f32", 8),  # two pipes of 128 bits
        ("rpi5", "s8", 32),
        ("rpi4", "f16", None),  # its kernels have no half precision
        ("visionfive2", "f32", 1),  # no vectors
        ("rv64gcv-zvl512b", "f32", None),  # no timing model
    ],
)
def test_the_peak_of_a_core_follows_from_its_timing(board, dtype, products):
    assert peak_products(load_board(board), dtype) == products


def _judged(
    bound: dict[str, int],
    products: int,
    precision: str = "f32",
    threads: int = 1,
    op: str = "conv2d",
    board: str = "rpi5",
) -> HotOperator:
    """The verdict on an operator of rpi5 that takes 24,000 cycles: 10 µs."""
    cost = SimulatedCost(24_000, 50_000, bound)
    spec = OperatorSpec("op0", "conv2d", "ek_f32_conv")
    estimate = ModelEstimate(
        *("m", "r", "rpi5", "a76", 2400.0, threads, "float", cost),
        *((OperatorEstimate(spec, cost),), 0, 64, 32, {}, 1, None),
    )
    made: dict[str, Any] = {
        "name": "op0",
        "op": op,
        "precision": precision,
        "bytes": 4000,
        "constant_bytes": 100,
        "multiply_adds": products,
    }
    target = BenchTarget(
        "m.onnx", board, load_board(board), {"operators": [made]}, command="estimate"
    )
    (judged,) = judge_operators(estimate, target)
    return judged


@pytest.mark.parametrize(
    ("bound", "products", "kind", "advice"),
    [
        ({"issue": 24_000}, 8 * 24_000 * 9 // 10, "compute", "estimate m.onnx --board rpi5 --prec"),
        ({"dram": 13_000, "issue": 11_000}, 8 * 12_000, "memory", "half the bytes"),
        ({"l2": 13_000, "issue": 11_000}, 8 * 12_000, "kernel", "lab tune model"),
        ({"issue": 14_000, "l1": 10_000}, 8 * 12_000, "kernel", "--precision f16"),
        ({"unit:vector": 24_000}, 8 * 12_000, "kernel", "--precision f16"),
        ({"issue": 24_000}, 0, "kernel", "lab tune model"),
    ],
)
def test_advice_follows_from_what_bounds_an_operator(bound, products, kind, advice):
    judged = _judged(bound, products)
    assert judged.kind == kind and advice in judged.advice
    expected = products / 24_000 / 8 if products else None
    assert judged.of_products == (None if expected is None else pytest.approx(expected))


def test_products_by_weights_of_few_bits_are_of_bytes_already():
    judged = _judged({"issue": 24_000}, 32 * 24_000 * 9 // 10, op="outlier_fully_connected")
    assert judged.kind == "compute" and "a smaller model" in judged.advice


@pytest.mark.parametrize(
    ("precision", "peak", "advice"),
    [("f16", 16, "8 bits are faster: edgekit quantize m.onnx"), ("s8", 32, "a smaller model")],
)
def test_what_is_faster_than_a_half_near_the_peak_is_8_bits(precision, peak, advice):
    judged = _judged({"issue": 24_000}, peak * 24_000 * 9 // 10, precision)
    assert judged.kind == "compute" and advice in judged.advice


def test_8_bits_are_not_faster_without_vectors():
    judged = _judged({"issue": 24_000}, 24_000 * 9 // 10, board="visionfive2")
    assert "8 bits" not in judged.advice and "a smaller model" in judged.advice


def test_the_peak_is_that_of_all_threads_and_of_the_precision():
    assert _judged({"issue": 24_000}, 8 * 24_000, threads=4).of_products == pytest.approx(0.25)
    assert _judged({"issue": 24_000}, 8 * 24_000, "f16").of_products == pytest.approx(0.5)
    assert _judged({"issue": 24_000}, 8 * 24_000, "s8").of_products == pytest.approx(0.25)
