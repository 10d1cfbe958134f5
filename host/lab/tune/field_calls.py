"""Turns the times of products that programs in the field compute into measurements and settings.

Boards that explore compute some products again with another method: the times of both, from one
batch, are compared. Otherwise the same product ran in two releases of kernels whose tables
differ, in one of them with the method that it gets without a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from statistics import median
from typing import Any, Generic, NamedTuple, TypeVar

from edgekit.device.runtime.arrays.calls import (
    GEMM,
    SPMV,
    TRIAL,
    Call,
    GemmCall,
    SpmvCall,
    parse_call,
)
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings, default_settings
from edgekit.device.runtime.arrays.sparse_library import VALUE_BYTES
from edgekit.device.runtime.arrays.sparse_table import Key, SpmvRow
from edgekit.host.compiler.costs.methods.gemm import Method, analytic_method, split_of
from edgekit.host.compiler.lowering.sparse.strips import strip_height
from edgekit.host.fleet.profiles import ProfileStore, asking
from edgekit.host.lab.history.measurement import Measurement
from edgekit.host.lab.tune.field_profiles import KEPT, platform_of
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile

_FEWEST = 3  # samples of a method before it counts
_BETTER = 0.97  # of the other method's time: smaller gains are noise
_DIGITS = 4
_CONTROLLED = ("tuner", "benchmark")  # sources whose conditions were better than the field's
_TIMES = f"""
    SELECT op, name, kernel, profile, threads, board, uuid, max(kit), max(received),
        sum(samples)::BIGINT, median(median_ns)
    FROM ({KEPT}) WHERE op IN ('{GEMM}', '{SPMV}', '{GEMM}{TRIAL}', '{SPMV}{TRIAL}')
        AND median_ns > 0
    GROUP BY op, name, kernel, profile, threads, board, uuid ORDER BY ALL
"""
_Method = TypeVar("_Method", Method, BlockSettings)


class _Product(NamedTuple):
    """A product as computed on boards of one type."""

    kind: str
    name: str
    profile: str
    threads: int


@dataclass(frozen=True)
class _Time:
    """A method's time in one batch."""

    method: str
    board: str
    batch: str
    samples: int
    ns: float
    kit: str
    received: float
    trial: bool


@dataclass(frozen=True)
class Winner:
    """A method that beat the one without a row in `won` of `batches` batches, on `boards`
    boards."""

    product: str
    method: str
    threads: int
    ratio: float
    won: int
    batches: int
    boards: int


@dataclass(frozen=True)
class FieldCalls:
    """Measurements of products and rows of sparse matrices, from samples on `boards` boards."""

    measurements: tuple[Measurement, ...] = ()
    rows: tuple[SpmvRow, ...] = ()
    winners: tuple[Winner, ...] = ()
    boards: int = 0

    def added_to(self, history: Iterable[Measurement]) -> list[Measurement]:
        """The measurements to add to a history: all but the ones of methods and products for which
        it has controlled runs."""
        known = {_identity(m) for m in history if m.source in _CONTROLLED}
        return [m for m in self.measurements if _identity(m) not in known]


@dataclass(frozen=True)
class _Compared(Generic[_Method]):
    """A method's time relative to that of the method without a row, in nanoseconds."""

    method: _Method
    ratio: float
    default_ns: float
    newest: _Time
    won: int
    batches: int
    boards: int


def field_calls(board: BoardProfile, store: ProfileStore | None = None) -> FieldCalls:
    """What the user's profile store knows about products on boards with this core; empty if there
    is no store or DuckDB is not installed."""
    store = store or ProfileStore()
    if not store.folder.is_dir() or find_spec("duckdb") is None:
        return FieldCalls()
    with asking(store) as views:
        rows = views.rows(_TIMES)
    products = _by_product(rows, board.platform)
    found: list[Measurement] = []
    sparse: dict[Key, list[tuple[str, _Compared[BlockSettings]]]] = defaultdict(list)
    winners: list[Winner] = []
    for product, times in products.items():
        calls = {t.method: parse_call(Call(product.kind, product.name, t.method)) for t in times}
        call = next(iter(calls.values()))
        if isinstance(call, GemmCall):
            shape = GemmShape(call.m, call.k, call.n)
            default = analytic_method(board, shape, call.dtype, product.threads).cut(shape)
            methods = {
                text: _method_of(each).cut(shape)
                for text, each in calls.items()
                if isinstance(each, GemmCall)
            }
            compared = _compare(times, methods, default)
            found += (_measurement(product, board, call, shape, each) for each in compared)
            winners += (_winner(product, each) for each in compared if each.ratio < _BETTER)
        elif isinstance(call, SpmvCall):
            settings = {t: each.settings for t, each in calls.items() if isinstance(each, SpmvCall)}
            others = _compare(times, settings, _rule_of(board, call))
            sparse[call.key] += ((product.name, each) for each in others)
            winners += (_winner(product, each) for each in others if each.ratio < _BETTER)
    boards = {t.board for times in products.values() for t in times}
    rows_of_sparse = tuple(_sparse_row(key, sparse[key]) for key in sorted(sparse) if sparse[key])
    return FieldCalls(tuple(found), rows_of_sparse, tuple(winners), len(boards))


def _by_product(rows: Iterable[Sequence[Any]], platform: str) -> Mapping[_Product, Sequence[_Time]]:
    found: dict[_Product, list[_Time]] = defaultdict(list)
    for op, name, method, profile, threads, board, batch, kit, received, samples, ns in rows:
        if platform_of(profile) == platform:
            product = _Product(op.removesuffix(TRIAL), name, profile, threads)
            trial = op.endswith(TRIAL)
            found[product].append(_Time(method, board, batch, samples, ns, kit, received, trial))
    return found


def _compare(
    times: Sequence[_Time], methods: Mapping[str, _Method], default: _Method
) -> list[_Compared[_Method]]:
    """The methods other than the default that were compared with it, from trials if there are
    any; then the default itself."""
    trials = [t for t in times if t.trial]
    found = []
    for method in sorted(set(methods.values()) - {default}, key=repr):
        own, usual = (
            [t for t in trials or times if methods[t.method] == which]
            for which in (method, default)
        )
        if min(sum(t.samples for t in each) for each in (own, usual)) < _FEWEST:
            continue
        pairs = _pairs(own, usual) if trials else [(_center(own), _center(usual), "")]
        if not pairs:
            continue
        ratio = median(mine / theirs for mine, theirs, _ in pairs)
        won = [board for mine, theirs, board in pairs if mine < theirs]
        newest = max(own, key=lambda t: t.received)
        boards = len(set(won)) if trials else len({t.board for t in own})
        found.append(
            _Compared(
                method,
                ratio,
                median(theirs for _, theirs, _ in pairs),
                newest,
                len(won),
                len(pairs),
                boards,
            )
        )
    if found:
        base = found[0]
        found.append(_Compared(default, 1.0, base.default_ns, base.newest, 0, base.batches, 0))
    return found


def _pairs(own: Sequence[_Time], usual: Sequence[_Time]) -> list[tuple[float, float, str]]:
    """The times of both methods in each batch that has both, and its board."""
    others = {(t.board, t.batch): t.ns for t in usual}
    return [(t.ns, others[t.board, t.batch], t.board) for t in own if (t.board, t.batch) in others]


def _center(times: Sequence[_Time]) -> float:
    """The median over boards of each board's median."""
    by_board: dict[str, list[float]] = defaultdict(list)
    for t in times:
        by_board[t.board].append(t.ns)
    return median(median(each) for each in by_board.values())


def _method_of(call: GemmCall) -> Method:
    how = call.method
    sizes = how.mc, how.kc, how.nc
    return Method(*sizes, how.pack_a, how.pack_b, how.mr, how.nr, split_of(how.split))


def _rule_of(board: BoardProfile, call: SpmvCall) -> BlockSettings:
    """The settings without a row."""
    stored = call.key.stored
    mean = call.nonzeros / call.rows if call.rows else 0.0
    return default_settings(mean, strip_height(board.isa, stored), VALUE_BYTES[stored])


def _measurement(
    product: _Product,
    board: BoardProfile,
    call: GemmCall,
    shape: GemmShape,
    found: _Compared[Method],
) -> Measurement:
    when = datetime.fromtimestamp(found.newest.received, UTC).isoformat(timespec="seconds")
    return Measurement(
        board=product.profile,
        platform=board.platform,
        dtype=call.dtype,
        threads=product.threads,
        shape=shape,
        method=found.method,
        cost=found.ratio * found.default_ns * 1e-9,
        default_cost=found.default_ns * 1e-9,
        spread=0.0,
        when=when,
        kit_version=found.newest.kit,
        source="profile",
    )


def _winner(product: _Product, found: _Compared[_Method]) -> Winner:
    counts = found.won, found.batches, found.boards
    ratio = float(f"{found.ratio:.{_DIGITS}g}")
    name = f"{product.kind} {product.name}"
    return Winner(name, found.newest.method, product.threads, ratio, *counts)


def _sparse_row(key: Key, found: Sequence[tuple[str, _Compared[BlockSettings]]]) -> SpmvRow:
    """The best settings of a key; the rule if none is better."""
    name, best = min(found, key=lambda each: (each[1].ratio, each[0]))
    if best.ratio >= _BETTER:
        return SpmvRow(key, None, name, 1.0)
    return SpmvRow(key, best.method, name, float(f"{best.ratio:.{_DIGITS}g}"))


def _identity(m: Measurement) -> tuple[object, ...]:
    return m.platform, m.dtype, m.threads, m.packed, m.shape, m.method
