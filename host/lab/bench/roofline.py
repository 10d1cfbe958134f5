"""How far the operators of an estimated model are from what the board's core could do, and why.

The most that a core could do comes from its timing model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.host.lab.bench.advice import (
    OF_BYTES,
    BenchTarget,
    fewer_threads,
    move_less,
    multiply_less,
    other_methods,
)
from edgekit.host.simulator.model import ModelEstimate, OperatorEstimate
from edgekit.host.simulator.report import bound_text
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.clusters import timed_core
from edgekit.kb.targets.core import ELEMENTS, WIDTHS, Core, operation_table
from edgekit.kb.targets.isa import ByteProduct

NEAR = 0.7  # of the best rate: little left to gain
TINY_US = 5.0  # below this, dispatch overhead dominates an operator
_8_BITS = ("s8", "u8")
_MEMORY = ("dram", "tlb", "l3")  # causes that fewer bytes help against
_Product = tuple[str, int, int, int]  # class, width, element, and multiply-adds of an instruction
_SCALAR: dict[str, _Product] = {"f32": ("f_fma", 64, 32, 1), "s8": ("mul", 64, 32, 1)}
_FLOAT: dict[str, _Product] = {"f32": ("v_fma", 128, 32, 4), "f16": ("v_fma", 128, 16, 8)}
_DOT: _Product = ("v_dot", 128, 32, 16)
_MATRIX: _Product = ("v_mmla", 128, 32, 32)
_LONG: _Product = ("v_mla_long", 128, 16, 8)


@dataclass(frozen=True)
class HotOperator:
    """An operator and its bottleneck: memory, compute, overhead, kernel or unknown.

    `bytes` read and written, `multiply_adds`, and the fractions it reaches of the board's memory
    bandwidth and of the best multiply-add rate; None if unknown.
    """

    name: str
    op: str
    kernel: str
    share: float
    median_us: float
    kind: str
    why: str
    advice: str
    bytes: int | None = None
    multiply_adds: int | None = None
    of_memory: float | None = None
    of_products: float | None = None


def judge_operators(estimate: ModelEstimate, target: BenchTarget) -> tuple[HotOperator, ...]:
    """The operators of an estimate, slowest first."""
    decided = {o["name"]: o for o in target.explained["operators"]} if target.explained else {}
    slowest = sorted(estimate.operators, key=lambda o: -o.cost.cycles)
    return tuple(_judge(o, decided.get(o.spec.name), estimate, target) for o in slowest)


def _judge(
    operator: OperatorEstimate,
    made: Mapping[str, Any] | None,
    estimate: ModelEstimate,
    target: BenchTarget,
) -> HotOperator:
    spec, cost = operator.spec, operator.cost
    microseconds = 1e3 * estimate.milliseconds(cost.cycles)
    bound = bound_text(cost)
    identity = (spec.name, spec.op, spec.kernel, cost.cycles / (estimate.cost.cycles or 1))
    tune = other_methods("other methods in simulated time", target)
    products = made["multiply_adds"] if made else None
    peak = peak_products(target.profile, _precision(spec.kernel, made)) if made else None
    of_peak = None
    if products and peak and cost.cycles:
        of_peak = products / cost.cycles / peak / estimate.threads
    facts = (made["bytes"] if made else None, products, None, of_peak)
    shown = f"{of_peak:.0%} of the core's peak, bound by {bound}" if of_peak else bound
    if made is None:
        kind, advice = "estimated", tune
    elif microseconds < TINY_US:
        kind, advice = "overhead", fewer_threads(estimate.threads, target)
    elif (of_peak or 0.0) >= NEAR:
        kind, advice = "compute", multiply_less(made, target)
    elif _is_bound_by_memory(cost.bound):
        kind, advice = "memory", move_less([made], target)
    elif products and made["precision"] == "f32" and _is_busy(cost.bound, target):
        kind, advice = "kernel", multiply_less(made, target)
    else:
        kind, advice = "kernel", tune
    why = f"its estimated cycles: {shown}"
    return HotOperator(*identity, microseconds, kind, why, advice, *facts)


def _precision(kernel: str, made: Mapping[str, Any]) -> str:
    """The type that an operator multiplies in: 8-bit products of float tensors name theirs."""
    of_bytes = made["op"] in OF_BYTES or made["precision"] in _8_BITS
    if of_bytes or any(f"_{kind}_" in kernel for kind in _8_BITS):
        return "s8"
    return str(made["precision"])


def _is_bound_by_memory(bound: Mapping[str, int]) -> bool:
    """Whether more cycles wait for memory beyond the core's caches than for any other cause."""
    causes = Counter(bound)
    beyond = sum(causes.pop(cause, 0) for cause in _MEMORY)
    return beyond > max(causes.values(), default=0)


def _is_busy(bound: Mapping[str, int], target: BenchTarget) -> bool:
    """Whether the core mostly computes, which half precision does in half of the instructions."""
    busy = sum(cycles for cause, cycles in bound.items() if cause.startswith(("issue", "unit:")))
    return target.profile.computes_half and 2 * busy > sum(bound.values())


def peak_products(board: BoardProfile, dtype: str) -> float | None:
    """Multiply-adds per cycle of the board's `timed_core` in f32, f16 or s8; None if it has no
    model, or no such instructions."""
    core = timed_core(board)
    if core is None or (dtype == "f16" and not board.computes_half):
        return None
    if board.arch == "riscv64" and not board.vlen_bits:
        product = _SCALAR.get(dtype)
    elif dtype == "s8":
        kind = board.isa.i8
        product = _MATRIX if kind is ByteProduct.MMLA else _DOT if kind.is_signed_dot else _LONG
    else:
        product = _FLOAT.get(dtype)
    return _rate(core, product) if product else None


def _rate(core: Core, product: _Product) -> float:
    name, width, element, count = product
    row = operation_table(core)[name, WIDTHS.index(width), ELEMENTS.index(element)]
    ports = len(core.units[row.unit or ""].ports)
    busy = (row.uops or 1) * (row.takes or 1) * (row.cycles or 1)
    return count * min(ports / busy, core.issue.width)
