"""The GEMM knowledge base: a table that maps feature indices to methods.

Source: the patent's "preset relation": exact, then relaxed by the priority of the features; then
ours: the board's analytic default. Every answer states which of the three applied, and why.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Protocol, TypeVar

from edgekit.host.common.text import counted
from edgekit.host.compiler.costs.methods.gemm import Method, analytic_method, threads_of
from edgekit.host.compiler.costs.methods.operators import Form, OperatorMethod
from edgekit.kb.features import GemmKey, GemmShape, Packed, Sequences, key_of
from edgekit.kb.targets.board import BoardProfile

Feature = Literal["scale", "m", "n", "k"]
FEATURES: tuple[Feature, ...] = ("scale", "m", "n", "k")


@dataclass(frozen=True)
class GemmRow:
    """The best known method of one key.

    The analytic method is used instead if `method` is None (none beat it); if a relaxed lookup
    finds a row that does not relax, or whose tile is transposed where the analytic one is not, or
    vice versa; if its tile is for vectors but the product has none; or if the product is beyond
    `radius`.
    """

    key: GemmKey
    method: Method | None
    shape: GemmShape  # the measured product for which the method was best
    source: str  # tuner, benchmark, profile, import, estimate, instructions or analytic
    history_rows: int = 0  # number of measurements behind it
    ratio: float | None = None  # time relative to the default method in the same run; None: unknown
    gflops: float | None = None  # None: only instructions were counted, or nothing
    relaxes: bool = True  # whether the method is valid for products other than its own
    cpu: str = ""  # the CPUs of an x86 class that it was measured on
    # Maximum distance from `shape` in hundredths of `GemmShape.log_distance`, since equal indices
    # still admit products 30 times as large; None: unlimited.
    radius: int | None = None


@dataclass(frozen=True)
class OperatorRow:
    """The best known method of an operator's key; None: nothing beat the analytic one. For `radius`
    see `GemmRow`."""

    key: GemmKey
    method: OperatorMethod | None
    shape: GemmShape
    source: str
    ratio: float | None = None  # time relative to the analytic method
    radius: int | None = None
    gflops: float | None = None


class _Known(Protocol):
    """The attributes common to rows of products and of operators."""

    @property
    def key(self) -> GemmKey: ...
    @property
    def shape(self) -> GemmShape: ...
    @property
    def gflops(self) -> float | None: ...
    @property
    def radius(self) -> int | None: ...


_R = TypeVar("_R", bound=_Known)


class Index(Generic[_R]):
    """Rows by key and by the features used in relaxed lookups. Raises ValueError for duplicate
    keys."""

    def __init__(self, rows: Iterable[_R]) -> None:
        self._by_key: dict[GemmKey, _R] = {}
        self._by_feature: dict[_Shared, list[_R]] = {}
        for row in rows:
            if row.key in self._by_key:
                raise ValueError(f"expected one row per key, found two of {row.key}")
            self._by_key[row.key] = row
            for name in FEATURES:
                self._by_feature.setdefault(_feature_key(row.key, name), []).append(row)

    def exact(self, key: GemmKey) -> _R | None:
        """The row of a key: one hash lookup."""
        return self._by_key.get(key)

    def relaxed(
        self, key: GemmKey, shape: GemmShape, priority: tuple[Feature, ...]
    ) -> tuple[_R, Feature, str] | None:
        """The nearest row among those that share the first feature with any match, with that
        feature and a reason."""
        for name in priority:
            if found := self._by_feature.get(_feature_key(key, name)):
                best = min(found, key=lambda r: _preference_key(r, key, shape))
                return best, name, f"no exact row; {len(found)} share {name}={getattr(key, name)}"
        return None


class OperatorIndex(Index[OperatorRow]):
    """Rows of operators.

    If several threads have no row, rows of other thread counts are used, in ascending order. A
    single thread uses only its own rows, because methods for several threads are selected for even
    sharing.
    """

    def __init__(self, rows: Iterable[OperatorRow]) -> None:
        kept = tuple(rows)
        super().__init__(kept)
        self._threads = sorted({row.key.threads for row in kept})

    def find(
        self, key: GemmKey, shape: GemmShape, priority: tuple[Feature, ...]
    ) -> tuple[OperatorRow | None, str, str]:
        """The row, exact or relaxed, within its radius; the rule; and a reason."""
        far = ""
        known = [n for n in self._threads if key.threads > 1 or n == 1]
        for count in sorted(known, key=lambda n: n != key.threads):
            asked = replace(key, threads=count)
            there = counted(count, "thread")
            other = "" if count == key.threads else f"; measured on {there}, not {key.threads}"
            row = self.exact(asked)
            if row is not None and _within_radius(row, shape):
                rule = "relaxed:threads" if other else "exact"
                return row, rule, f"all index values are equal{other}"
            if found := self.relaxed(asked, shape, priority):
                best, name, why = found
                if _within_radius(best, shape):
                    return best, f"relaxed:{name}", f"{why}{other}"
                s = best.shape
                far = far or f"{why}, of which {s.m} x {s.k} x {s.n}, the nearest, is too far"
        return None, "analytic", far


@dataclass(frozen=True)
class GemmChoice:
    """The result of a lookup: the method, the rule that found it, and the reason.

    The rule is "analytic" if the row that was found does not apply; "exact" also if the analytic
    method was the best one measured for this key.
    """

    key: GemmKey
    method: Method
    rule: str
    why: str
    history_rows: int
    row: GemmRow | None = None  # the source of the method; None: the analytic one
    nearest: GemmRow | None = None  # the row that was found, even if it does not apply


@dataclass(frozen=True)
class KnowledgeBase:
    """Rows of one or more platforms under one set of sequences; `operator_sequences`, unless None,
    is the one of operators.

    `rows` are for products of a board's library, `operators` for those of compiled models.
    `platforms` is append-only: a core type's position is its index. `skipped` describes rows of the
    file that are unknown to this edgekit or core, with the reason.
    """

    platforms: tuple[str, ...]
    sequences: Sequences = field(default_factory=Sequences)
    priority: tuple[Feature, ...] = FEATURES
    rows: tuple[GemmRow, ...] = ()
    skipped: tuple[str, ...] = ()
    operators: tuple[OperatorRow, ...] = ()
    operator_sequences: Sequences | None = None
    _products: Index[GemmRow] = field(init=False, repr=False, compare=False)
    _groups: frozenset[tuple[int, str, Packed]] = field(init=False, repr=False, compare=False)
    _operators: OperatorIndex = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if sorted(self.priority) != sorted(FEATURES):
            raise ValueError(f"expected a priority of scale, m, n and k, found {self.priority}")
        if len(set(self.platforms)) != len(self.platforms):
            raise ValueError(f"expected distinct platforms, found {', '.join(self.platforms)}")
        for key in (*(r.key for r in self.rows), *(r.key for r in self.operators)):
            if not 0 <= key.platform < len(self.platforms):
                raise ValueError(f"expected a known platform index, found {key.platform}")
        object.__setattr__(self, "_products", Index(self.rows))
        groups = frozenset((r.key.platform, r.key.dtype, r.key.packed) for r in self.rows)
        object.__setattr__(self, "_groups", groups)
        object.__setattr__(self, "_operators", OperatorIndex(self.operators))

    def key(
        self,
        platform: str,
        shape: GemmShape,
        dtype: str = "f32",
        threads: int = 1,
        packed: Packed = "none",
    ) -> GemmKey:
        """The feature indices of a product; an unknown platform has index -1 (no rows)."""
        index = self.platforms.index(platform) if platform in self.platforms else -1
        return key_of(shape, index, self.sequences, dtype, threads, packed)

    def lookup(
        self,
        platform: str,
        shape: GemmShape,
        default: Method,
        dtype: str = "f32",
        threads: int = 1,
        packed: Packed = "none",
        vl: int = 1,
    ) -> GemmChoice:
        """The method for a product; the result depends only on the arguments.

        `default` is the board's analytic one, `vl` the lanes of its vectors. An exact match takes
        one hash lookup.
        """
        key = self.key(platform, shape, dtype, threads_of(shape, threads), packed)
        row = self._products.exact(key)
        if row is not None:
            near = _within_radius(row, shape)
            why = "all index values are equal"
            if not near:
                s = row.shape
                why += f", but {s.m} x {s.k} x {s.n}, which was measured, is too far"
            return _build_answer(key, row, near and _method_fits(row, shape), default, "exact", why)
        if found := self._products.relaxed(key, shape, self.priority):
            best, name, why = found
            taken = _method_fits(best, shape) and _can_relax(best, default, vl)
            return _build_answer(key, best, taken, default, f"relaxed:{name}", why)
        why = "no row shares a feature"
        if (key.platform, dtype, packed) not in self._groups:
            side = " with unpacked operands" if packed == "none" else f" with {packed} packed"
            why = f"no rows for {dtype} products{side} on {platform}"
        return GemmChoice(key, default, "analytic", f"{why}; from the board's caches", 0)

    def choose(
        self,
        board: BoardProfile,
        shape: GemmShape,
        dtype: str = "f32",
        threads: int = 1,
        packed: Packed = "none",
    ) -> GemmChoice:
        """The method for a product on a board, from this table or from the board's caches."""
        default = analytic_method(board, shape, dtype, threads, packed)
        vl = board.isa.vl
        return self.lookup(board.platform, shape, default, dtype, threads, packed, vl)

    def operator_row(
        self, platform: str, form: Form, threads: int = 1
    ) -> tuple[OperatorRow | None, str, str]:
        """The row of an operator's form, exact or relaxed, within its radius; the rule; the reason.

        Unsigned bytes run on the kernels of signed ones, so rows of signed bytes are used if there
        are none for unsigned, or if only the signed row is exact.
        """
        index = self.platforms.index(platform) if platform in self.platforms else -1
        shape = form.shape
        key = key_of(shape, index, self.for_operators, form.dtype, threads, "b", form.name)
        row, rule, why = self._operators.find(key, shape, self.priority)
        if form.dtype == "u8" and rule != "exact":
            signed = self._of_signed(key, shape)
            if row is None or signed[1] == "exact":
                row, rule, why = signed
        return row, rule, why or f"no row for {form.name} of {form.dtype} on {platform}"

    def _of_signed(self, key: GemmKey, shape: GemmShape) -> tuple[OperatorRow | None, str, str]:
        found, rule, why = self._operators.find(replace(key, dtype="s8"), shape, self.priority)
        if found is None:
            return None, rule, why
        method = found.method and replace(found.method, precision=key.dtype)
        return replace(found, method=method), rule, f"{why}; measured on s8"

    @property
    def for_operators(self) -> Sequences:
        """The sequences of operators' keys."""
        return self.operator_sequences or self.sequences

    @property
    def knows_threads(self) -> bool:
        """True if the method of an operator may depend on the number of threads."""
        return len({row.key.threads for row in self.operators}) > 1

    def knowing(self, platform: str) -> KnowledgeBase:
        """This table with an index for `platform`."""
        if platform in self.platforms:
            return self
        return replace(self, platforms=(*self.platforms, platform))

    def serving(self, platform: str, known: str) -> KnowledgeBase:
        """This table with the rows of a known platform assigned to another one."""
        if platform == known or platform in self.platforms:
            return self.knowing(platform)
        renamed = (platform if name == known else name for name in self.platforms)
        return replace(self, platforms=tuple(renamed)).knowing(platform)

    def with_rows(self, rows: Iterable[GemmRow]) -> KnowledgeBase:
        """This table with other rows, sorted by key."""
        return replace(self, rows=tuple(sorted(rows, key=lambda r: r.key)))


def _build_answer(
    key: GemmKey, row: GemmRow, taken: bool, default: Method, rule: str, why: str
) -> GemmChoice:
    if row.method is not None and taken:
        return GemmChoice(key, row.method, rule, why, row.history_rows, row, row)
    if row.method is None:
        why += "; nothing beat the analytic method there"
        rule = rule if rule == "exact" and taken else "analytic"
    else:
        why += "; its method does not suit this product, so the analytic one"
        rule = "analytic"
    return GemmChoice(key, default, rule, why, row.history_rows, nearest=row)


def _method_fits(row: GemmRow, shape: GemmShape) -> bool:
    """Rejects single-column methods for other products, since equal indices do not make one column
    of four: a tile of one row or column is for products with a vector only."""
    return row.method is None or row.method.is_with_vector <= (1 in (shape.m, shape.n))


def _within_radius(row: _Known, shape: GemmShape) -> bool:
    return row.radius is None or 100.0 * shape.log_distance(row.shape) <= row.radius


def _can_relax(row: GemmRow, default: Method, vl: int) -> bool:
    """False if only one of the row's tile and the analytic tile is transposed: transposed tiles are
    for few columns, others for many."""
    if row.method is None:
        return row.relaxes
    return row.relaxes and row.method.is_transposed(vl) == default.is_transposed(vl)


_Shared = tuple[Feature, int, int, str, Packed, str, int]


def _feature_key(key: GemmKey, name: Feature) -> _Shared:
    """The attributes shared by rows that may replace each other, by one feature; for operators they
    include the thread count."""
    value: int = getattr(key, name)
    threads = key.threads if key.form else 0
    return name, value, key.platform, key.dtype, key.packed, key.form, threads


def _preference_key(
    row: _Known, key: GemmKey, shape: GemmShape
) -> tuple[int, float, float, GemmKey]:
    """Smaller is better: more equal fields, nearer shape, higher rate, lower key."""
    names = ("m", "k", "n", "scale", "threads")
    different = sum(getattr(row.key, n) != getattr(key, n) for n in names)
    return different, row.shape.log_distance(shape), -(row.gflops or 0.0), row.key
