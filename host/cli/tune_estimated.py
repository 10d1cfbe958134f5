"""Estimates of tuning results where there is no real board to measure on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from edgekit.host.errors import EdgekitError

if TYPE_CHECKING:
    from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
    from edgekit.device.runtime.arrays.sparse_input import Csr
    from edgekit.host.deploy.board import Board
    from edgekit.host.lab.tune.spmv import TunedMatrix
    from edgekit.host.lab.tune.tuner import BestMethod
    from edgekit.host.simulator.products import ProductTimer
    from edgekit.host.simulator.run import SimulatedCost
    from edgekit.host.simulator.target import SimulatedCore
    from edgekit.kb.targets.board import BoardProfile
    from edgekit.kb.targets.core_parts import Validation

    # The costs of a product with the matrix in each format, on some threads, within seconds.
    CostsOf = Callable[
        [SimulatedCore, Csr, Sequence[BlockSettings], int, float], tuple[SimulatedCost, ...]
    ]

_LOG = logging.getLogger("edgekit.estimate")
_SECONDS = 60.0  # per product
_T = TypeVar("_T")


def is_to_measure(name: str) -> bool:
    """Whether the board can be measured on, that is, not emulated and not just a profile."""
    from edgekit.host.deploy.connections import LOCAL
    from edgekit.host.deploy.inventory import find_board
    from edgekit.host.virtual.machines import virtual_board_names
    from edgekit.kb.targets.board import board_names

    is_own = name == LOCAL or find_board(name, Path.cwd()) is not None
    return is_own or name not in (*virtual_board_names(), *board_names())


def device_to_measure(name: str, transport: Any) -> Board | None:
    """The board to measure on; None if it is emulated or just a profile."""
    from edgekit.host.deploy.api import connect

    return connect(name, transport=transport) if is_to_measure(name) else None


@dataclass(frozen=True)
class MethodEstimate:
    """Microseconds of the tuned method and of the default one."""

    best: BestMethod
    found_us: float
    default_us: float
    proof: Validation | None

    def to_json(self) -> dict[str, Any]:
        from edgekit.host.simulator.report import error_document

        return {
            "shape": asdict(self.best.product.shape),
            "dtype": self.best.product.dtype,
            "estimated_us": self.found_us,
            "default_estimated_us": self.default_us,
            **error_document(self.proof),
        }


@dataclass(frozen=True)
class SettingsEstimate:
    """Microseconds of a product with the tuned settings and with the rule's."""

    tuned: TunedMatrix
    found_us: float
    default_us: float
    proof: Validation | None

    def to_json(self) -> dict[str, Any]:
        from edgekit.host.simulator.report import error_document

        return {
            "matrix": self.tuned.row.matrix,
            "estimated_us": self.found_us,
            "default_estimated_us": self.default_us,
            **error_document(self.proof),
        }


def estimate_methods(
    profile: BoardProfile,
    best: Sequence[BestMethod],
    is_quick: Callable[[str], bool] | None = None,
    timer_of: Callable[[SimulatedCore, float], ProductTimer] | None = None,
) -> list[MethodEstimate]:
    """Estimates each product; empty if the core has no model or the estimate cannot start
    immediately.

    `is_quick` tells whether estimates for an architecture can start immediately; `timer_of` makes
    what times products within seconds (default: the simulator's).
    """
    from edgekit.host.simulator.products import ProductTimer

    make = timer_of or ProductTimer
    return _if_quick(profile, is_quick, lambda: _estimate_methods(profile, best, make))


def estimate_settings(
    profile: BoardProfile,
    tuned: TunedMatrix,
    matrix: Csr,
    threads: int,
    is_quick: Callable[[str], bool] | None = None,
    costs_of: CostsOf | None = None,
) -> list[SettingsEstimate]:
    """Estimates one matrix; empty under the same conditions as `estimate_methods`. `costs_of`
    estimates products in several formats (default: the simulator's)."""
    from edgekit.host.simulator.sparse import spmv_costs

    costs = costs_of or spmv_costs
    return _if_quick(
        profile, is_quick, lambda: [_settings_estimate(profile, tuned, matrix, threads, costs)]
    )


def _if_quick(
    profile: BoardProfile,
    is_quick: Callable[[str], bool] | None,
    estimates: Callable[[], list[_T]],
) -> list[_T]:
    from edgekit.host.simulator.model import is_quick as can_start
    from edgekit.host.simulator.target import has_model

    if not (has_model(profile) and (is_quick or can_start)(profile.arch)):
        return []
    try:
        return estimates()
    except EdgekitError as error:  # the main task is already done
        _LOG.info("no estimate: %s", error)
        return []


def _settings_estimate(
    profile: BoardProfile, tuned: TunedMatrix, matrix: Csr, threads: int, costs_of: CostsOf
) -> SettingsEstimate:
    from edgekit.host.simulator.target import target_of

    target = target_of(profile)
    forms = (tuned.row.settings_for(tuned.rule), tuned.rule)
    costs = costs_of(target, matrix, forms, threads, _SECONDS)
    found, usual = (1e3 * target.milliseconds(cost.cycles) for cost in costs)
    proof = target.proof("int8" if matrix.data.dtype.name == "int8" else "float", threads)
    return SettingsEstimate(tuned, found, usual, proof)


def _estimate_methods(
    profile: BoardProfile,
    best: Sequence[BestMethod],
    timer_of: Callable[[SimulatedCore, float], ProductTimer],
) -> list[MethodEstimate]:
    from edgekit.host.compiler.costs.methods.gemm import analytic_method
    from edgekit.host.simulator.products import Multiplication
    from edgekit.host.simulator.target import target_of

    target = target_of(profile)
    timer = timer_of(target, _SECONDS)
    made = []
    for each in best:
        p = each.product
        default = analytic_method(profile, p.shape, p.dtype, p.threads, p.packed)
        product = Multiplication(p.shape, p.dtype, p.packed, p.threads)
        costs = timer.costs(product, (each.method, default))
        found, usual = (1e3 * target.milliseconds(cost.cycles) for cost in costs)
        proof = target.proof("float" if p.dtype in ("f32", "f16") else "int8", p.threads)
        made.append(MethodEstimate(each, found, usual, proof))
    return made


def show_methods(profile: BoardProfile, estimates: Sequence[MethodEstimate]) -> None:
    """Prints a table, each time with its error."""
    from edgekit.host.cli.output import table
    from edgekit.host.simulator.report import error_text

    if not estimates:
        return
    rows = []
    for each in estimates:
        p = each.best.product
        times = (f"{each.found_us:.1f}", f"{each.default_us:.1f}", error_text(each.proof))
        rows.append((f"{p.shape.m},{p.shape.k},{p.shape.n}", p.dtype, *times))
    heads = ("m,k,n", "dtype", f"estimated µs on {profile.name}", "by default", "error")
    table(heads, rows, left=2)


def show_settings(profile: BoardProfile, estimates: Sequence[SettingsEstimate]) -> None:
    """Prints a table, each time with its error."""
    from edgekit.host.cli.output import table
    from edgekit.host.simulator.report import error_text

    if not estimates:
        return
    rows = [
        (e.tuned.row.matrix, f"{e.found_us:.1f}", f"{e.default_us:.1f}", error_text(e.proof))
        for e in estimates
    ]
    heads = ("matrix", f"estimated µs on {profile.name}", "by the rule", "error")
    table(heads, rows, left=1)
