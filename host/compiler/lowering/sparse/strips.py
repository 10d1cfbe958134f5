"""Pruned weights in the strips of ek_sparse: which rows share a strip, and of which kind.

Must match device/kernels/sparse/build.c, which builds them on a board.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_table import MatrixFeatures
from edgekit.device.runtime.kernel_facts import SCALAR_LANES, STRIP_PADDING, STRIP_WINDOW
from edgekit.host.compiler.ir.types import Array
from edgekit.kb.targets.isa import Isa

_STRIP = np.dtype(
    [("slot", "<i8"), ("index", "<i8"), ("slots", "<u4"), ("base", "<u4"), ("at", "<u4"),
     ("steps", "<u4"), ("row", "<u4"), ("kind", "u1"), ("index_bytes", "u1"), ("rows", "u1"),
     ("in_order", "u1")]
)  # fmt: skip
_LANES, _WIDE, _DIAGONAL, _WINDOWS, _PACKED = range(5)  # ek_strip_kind
_FEW = 4  # maximum columns spanned by a strip per nonzero


def strip_height(isa: Isa, stored: str) -> int:
    """Rows of a strip: register bits divided by the bits of a sum."""
    lanes = isa.vl
    if lanes == 1:
        return SCALAR_LANES
    return lanes // 2 if stored == "f64" else lanes


@dataclass(frozen=True)
class Sparse:
    """A matrix in CSR form: start [rows + 1], and the column and value of each nonzero."""

    cols: int
    start: Array
    column: Array
    value: Array

    @staticmethod
    def of(weights: Array) -> Sparse:
        row, column = np.nonzero(weights)
        start = np.searchsorted(row, np.arange(len(weights) + 1))
        return Sparse(weights.shape[1], start, column, weights[row, column].astype(np.float32))

    @property
    def lengths(self) -> Array:
        return np.diff(self.start)

    def row(self, row: int) -> slice:
        return slice(int(self.start[row]), int(self.start[row + 1]))

    def features(self) -> MatrixFeatures:
        """The features computed by ek_rows_measure."""
        lengths = self.lengths
        used = np.flatnonzero(lengths)
        spans = self.column[self.start[used + 1] - 1] - self.column[self.start[used]] + 1
        return MatrixFeatures(
            "f32", len(lengths), self.cols, len(self.value), float(lengths.mean()),
            float(lengths.std()), int(lengths.max()), float(spans.mean()) if len(used) else 0.0,
        )  # fmt: skip


@dataclass(frozen=True)
class Strips:
    """ek_sparse as flat arrays."""

    strip: Array
    values: Array
    index: Array
    order: Array
    slots: int


@dataclass
class _Builder:
    a: Sparse
    how: BlockSettings
    height: int
    columns: int  # of a window
    strip: list[tuple[int, ...]] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    index: list[Array] = field(default_factory=list)
    order: list[Array] = field(default_factory=list)
    slots: int = 0
    index_bytes: int = 0
    at: int = 0

    def add(
        self, kind: int, rows: Array, values: Array, index: Array, base: int, size: int,
        steps: int = 0,
    ) -> None:  # fmt: skip
        """Adds one strip with slots `values` and index bytes `index`, `size` bytes per column."""
        slots = values.size // self.height
        in_order = bool((rows == rows[0] + np.arange(len(rows))).all())
        self.strip.append(
            (self.slots, self.index_bytes, slots, base, self.at, steps, int(rows[0]), kind, size,
             len(rows), in_order)
        )  # fmt: skip
        self.values.append(values.reshape(-1))
        padded = np.concatenate([index, np.zeros(-len(index) % 8, np.uint8)])
        self.index.append(padded)
        self.order.append(rows)
        self.slots += slots
        self.index_bytes += len(padded)
        self.at += len(rows)


def build_strips(a: Sparse, how: BlockSettings, isa: Isa) -> Strips:
    """Builds the strips of an f32 matrix for the kernels of an instruction set."""
    height = strip_height(isa, "f32")
    b = _Builder(a, how, height, STRIP_WINDOW if isa.sparse_windows else 0)
    rows = len(a.start) - 1
    window = -(-max(how.window, height) // height) * height
    for start in range(0, rows, window):
        _add_window(b, start, min(start + window, rows))

    def joined(parts: list[Array], dtype: type[np.generic]) -> Array:
        return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)

    return Strips(
        np.array(b.strip, _STRIP), joined(b.values, np.float32), joined(b.index, np.uint8),
        joined(b.order, np.uint32), b.slots,
    )  # fmt: skip


def _add_window(b: _Builder, start: int, end: int) -> None:
    """Adds rows that are sorted as a unit."""
    pending = []
    for first in range(start, end, b.height):
        rows = np.arange(first, min(first + b.height, end))
        if not (b.how.diagonal and len(rows) == b.height and _add_diagonal(b, rows)):
            pending.append(rows)
    waiting = np.concatenate([np.zeros(0, np.int64), *pending])
    if b.how.window > 1:
        waiting = _sort_rows(b, waiting)
    at = 0
    while at < len(waiting):
        rows = waiting[at : at + b.height]
        if _is_wide(b, rows):
            rows = rows[:1]
            _add_wide(b, int(rows[0]))
        elif not _add_windows(b, rows):
            _add_short(b, rows)
        at += len(rows)


def _sort_rows(b: _Builder, rows: Array) -> Array:
    """Sorts rows by descending length, stably, unless their order needs little padding."""
    lengths = b.a.lengths[rows]
    padded = np.concatenate([lengths, np.zeros(-len(rows) % b.height, np.int64)])
    slots = int(padded.reshape(-1, b.height).max(axis=1).sum())
    if slots * b.height * 20 <= int(lengths.sum()) * 21:
        return rows
    return rows[np.argsort(-lengths, kind="stable")]


def _is_much(slots: int, height: int, held: int) -> bool:
    """True if fewer than 4/5 of the stored values are nonzero, so that another kind may pay."""
    return slots * height * 4 > held * 5


def _wide_slots(b: _Builder) -> int:
    """Minimum slots of a row that may occupy all lanes."""
    return 2 * b.height


def _is_padded(slots: int, height: int, held: int) -> bool:
    """True if more than 1.3 values are stored per nonzero."""
    return slots * height * 10 > held * 13


def _is_wide(b: _Builder, rows: Array) -> bool:
    lengths = b.a.lengths[rows]
    first = int(lengths[0])
    if b.how.wide_from and first >= b.how.wide_from:
        return True
    return first >= _wide_slots(b) and _is_much(first, b.height, int(lengths.sum()))


def _add_diagonal(b: _Builder, rows: Array) -> bool:
    """Adds consecutive rows as DIAGONAL if that pays; returns False otherwise."""
    a, height = b.a, b.height
    held = slice(int(a.start[rows[0]]), int(a.start[rows[-1] + 1]))
    lane = np.repeat(np.arange(height), a.lengths[rows])
    diagonal, slot = np.unique(a.column[held] - lane, return_inverse=True)
    if not len(diagonal) or _is_much(len(diagonal), height, len(lane)):
        return False
    if diagonal[0] < 0 or diagonal[-1] + height > a.cols:
        return False
    values = np.zeros((len(diagonal), height), np.float32)
    values[slot, lane] = a.value[held]
    b.add(_DIAGONAL, rows, values, _to_bytes(diagonal, 4), 0, 4)
    return True


def _add_wide(b: _Builder, row: int) -> None:
    """Adds one row spread over all lanes."""
    held = b.a.row(row)
    column, value = b.a.column[held], b.a.value[held]
    cells = -(-len(column) // b.height) * b.height
    values = np.zeros(cells, np.float32)
    values[: len(value)] = value
    base, size = _column_base(b, [column])
    padded = np.concatenate([column, np.repeat(column[-1:], cells - len(column))])
    b.add(_WIDE, np.array([row]), values, _to_bytes(padded - base, size), base, size)


def _add_short(b: _Builder, rows: Array) -> None:
    """Adds one row per lane, or packs short rows if padding would be large."""
    lengths = b.a.lengths[rows]
    slots, count = int(lengths.max()), int(lengths.sum())
    if slots >= _wide_slots(b) or not _is_padded(slots, b.height, count):
        return _add_lanes(b, rows)
    held = [b.a.row(int(row)) for row in rows]
    columns = [b.a.column[each] for each in held]
    base, size = _column_base(b, columns)
    cells = -(-count // b.height) * b.height
    values, index = np.zeros(cells, np.float32), np.zeros(cells, np.int64)
    values[:count] = np.concatenate([b.a.value[each] for each in held])
    index[:count] = np.concatenate(columns) - base
    ends = np.zeros((len(rows) + 3) // 4 * 4, np.int64)
    ends[: len(rows)] = np.cumsum(lengths)
    packed = np.concatenate([_to_bytes(ends, 2), _to_bytes(index, size)])
    return b.add(_PACKED, rows, values, packed, base, size)


def _add_lanes(b: _Builder, rows: Array) -> None:
    """Adds one row per lane; padding repeats the last column of the row."""
    held = [b.a.row(int(row)) for row in rows]
    columns = [b.a.column[each] for each in held]
    slots = max(len(column) for column in columns)
    base, size = _column_base(b, columns)
    values = np.zeros((slots, b.height), np.float32)
    index = np.zeros((slots, b.height), np.int64)
    for lane, (each, column) in enumerate(zip(held, columns, strict=True)):
        if n := len(column):
            values[:n, lane] = b.a.value[each]
            index[:n, lane] = column - base
            index[n:, lane] = column[-1] - base
    b.add(_LANES, rows, values, _to_bytes(index, size), base, size)


def _add_windows(b: _Builder, rows: Array) -> bool:
    """Adds rows as WINDOWS if supported and if padding is small; returns False otherwise."""
    a, columns = b.a, b.columns
    if not columns or not b.how.windows or len(rows) < b.height:
        return False
    held = [a.row(int(row)) for row in rows]
    count = sum(each.stop - each.start for each in held)
    together = np.concatenate([a.column[each] for each in held])
    base, high = (int(together.min()), int(together.max())) if count else (0, 0)
    if count * _FEW < high - base:
        return False
    half = columns // 2
    lane = np.repeat(np.arange(len(rows)), [each.stop - each.start for each in held])
    steps = (high - base) // half + 1
    inside = np.bincount((together - base) // half * b.height + lane, minlength=steps * b.height)
    due, done = _window_steps(inside.reshape(steps, b.height))
    slots = int(due.sum())
    if _is_padded(slots, b.height, count):
        return False
    nth = [np.arange(each.stop - each.start) for each in held]
    step = [np.searchsorted(done[1:, i], each, "right") for i, each in enumerate(nth)]
    first = np.cumsum(due) - due
    numbered = enumerate(zip(step, nth, strict=True))
    slot = np.concatenate([first[s] + n - done[s, i] for i, (s, n) in numbered])
    values = np.zeros((slots, b.height), np.float32)
    values[slot, lane] = np.concatenate([a.value[each] for each in held])
    index = np.full((slots, b.height), STRIP_PADDING, np.uint8)
    index[slot, lane] = (together - base) % columns
    head = np.zeros((4 + steps + 7) // 8 * 8, np.uint8)
    head[:4] = _to_bytes(np.array([steps]), 4)
    head[4 : 4 + steps] = due
    whole = np.concatenate([head, index.reshape(-1)])
    b.add(_WINDOWS, rows, values, whole, base, 1, int(steps))
    return True


def _window_steps(inside: Array) -> tuple[Array, Array]:
    """Schedules a window that advances by half its width per step.

    Returns the slots of each step, and the nonzeros of each lane done before it [steps + 1, lanes].
    `inside` [steps, lanes] counts the nonzeros in each half.
    """
    seen = np.cumsum(inside, axis=0)
    due = np.zeros(len(inside), np.int64)
    done = np.zeros((len(inside) + 1, inside.shape[1]), np.int64)
    for step, held in enumerate(seen):
        ends = step + 1 == len(seen)
        wanted = held if ends else seen[step - 1] if step else done[0]
        due[step] = (wanted - done[step]).max()
        done[step + 1] = np.minimum(done[step] + due[step], held)
    return due, done


def _column_base(b: _Builder, columns: list[Array]) -> tuple[int, int]:
    """The first column of a strip, and the bytes needed for offsets from it."""
    first = [int(column[0]) for column in columns if len(column)]
    last = [int(column[-1]) for column in columns if len(column)]
    if not first:
        return 0, max(1, b.how.index_bytes)
    span = max(last) - min(first)
    return min(first), max(1 if span < 1 << 8 else 2 if span < 1 << 16 else 4, b.how.index_bytes)


def _to_bytes(numbers: Array, size: int) -> Array:
    return np.frombuffer(numbers.astype(f"<u{size}").tobytes(), np.uint8)
