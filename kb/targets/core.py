"""Timing models of cores: one TOML file per core, with a source for every figure.

Figures are documented at their fields; simulator/core_text.py writes them for the plugin.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

FOLDER = Path(__file__).parent / "cores"
_CLASSES = Path(__file__).parents[2] / "host" / "simulator" / "plugin" / "classes.h"
WIDTHS = (64, 128)  # bits of a vector operation; scalars count as 64
ELEMENTS = (8, 16, 32, 64)
ISSUE = ("any", "first", "last", "alone")
_CHOICES: dict[str, tuple[str, ...]] = {
    "order": ("in", "out"),
    "policy": ("lru", "random"),
    "issue": ISSUE,
    "kind": ("float", "int8"),
}
_T = TypeVar("_T")


class CoreError(ValueError):
    """A core does not exist, or its file is invalid."""


@dataclass(frozen=True)
class Issue:
    """How instructions enter the core; in cycles and counts."""

    width: int  # instructions (in order) or micro-operations (out of order) per cycle
    fetch: int  # bytes of code per cycle
    taken: int  # empty cycles after a correctly predicted taken branch
    mispredict: int  # empty cycles after a mispredicted branch
    address: int = 0  # in order: extra latency from an ALU result to an address, versus to an ALU
    store_data: int = 0  # in order: delay from a store's address to its data being needed
    branch_data: int = 0  # in order: how much later a branch needs its operands than others
    window: int = 0  # micro-operations between dispatch and retirement (reorder buffer)
    retire: int = 0  # micro-operations that retire per cycle
    depth: int = 0  # cycles from dispatch to the first execution
    write_back: int = 0  # out of order: micro-operations for address write-back
    loads: int = 0  # entries of the load queue
    stores: int = 0  # entries of the store queue


@dataclass(frozen=True)
class Ports:
    """Bytes per cycle of a load or store on one port; larger accesses take more cycles."""

    load_bytes: int
    store_bytes: int


@dataclass(frozen=True)
class Unit:
    """A set of equivalent ports, and the entries of the queue before them."""

    ports: tuple[str, ...]
    queue: int = 0
    dispatch: int = 0  # out of order: micro-operations per cycle, including parts; 0: unlimited


@dataclass(frozen=True)
class Operation:
    """Timing of the instructions selected by `on`; later rows override the fields they set.

    `on` is a list of class[@width][/element] with * as a wildcard.
    """

    on: str
    unit: str | None = None
    latency: int | None = None  # cycles until the result is available
    forward: int | None = None  # the same for the accumulator of the next instruction
    cycles: int | None = None  # cycles for which a port is occupied
    uops: int | None = None  # micro-operations, each on a port of the unit
    takes: int | None = None  # ports occupied at the same time
    issue: str | None = None  # in order: any, first (of its cycle), last, alone
    source: str | None = None  # key in `sources`, if not "operations"


@dataclass(frozen=True)
class Rule:
    """Instructions in `on` do not issue `distance` cycles after those in `after`.

    0 is the same cycle, in which case the order does not matter.
    """

    on: str
    after: str
    distance: int
    source: str


@dataclass(frozen=True)
class Cache:
    """Bytes, ways, and cycles of latency; for a first level, the latency of a load."""

    bytes: int
    ways: int
    latency: int = 0
    policy: str = "lru"
    per_core: bool = False  # a second level that is private to each core
    line: int = 0  # cycles to transfer a line from the second to the first level
    out: int = 0  # cycles to write it back if it is dirty


@dataclass(frozen=True)
class Tlb:
    """Entries, and cycles of a first-level miss and of a page table walk."""

    entries: int
    second: int
    ways: int
    penalty: int
    walk: int


@dataclass(frozen=True)
class Prefetch:
    """Streams of lines that the prefetcher follows: how many, how far, after how many steps."""

    streams: int
    distance: int  # lines ahead that are prefetched to L1
    second: int  # further lines that are prefetched to L2
    confirm: int
    page: int = 4096  # bytes whose boundary it does not cross
    stores: int = 0  # 1: it also observes store misses
    apart: int = 0  # misses tracked before they form a stream; 0: each replaces a stream


@dataclass(frozen=True)
class Stores:
    """The store buffer, and completely written lines."""

    buffer: int  # entries (lines)
    drain: int  # cycles between two stores that leave it
    stream: int  # consecutive complete lines after which lines are not read first; 0: never
    gather: int = 32  # cycles for which a partial line that is not read first is held: assumed
    beyond: int = 0  # consecutive complete lines after which stores bypass the caches; 0: never
    miss: int = 0  # cycles for which a store that misses L1 blocks the buffer's exit


@dataclass(frozen=True)
class Branch:
    """Sizes of the predictor: counters, history lengths, targets, returns."""

    entries: int
    history: tuple[int, ...]
    targets: int
    indirect: int  # history bits that select an indirect target
    returns: int


@dataclass(frozen=True)
class Dram:
    """Nanoseconds of a load that misses all caches, and GB/s for one core and for all."""

    latency_ns: float
    core_gb_s: float
    gb_s: float
    write_gb_s: float = 0  # of writes alone; 0: the same as for all
    turn_ns: float = 0  # extra latency of a line after one for another core


@dataclass(frozen=True)
class Validation:
    """The validation of a core's estimates, with errors in percent on networks not used for
    fitting. `against`: the boards and their source."""

    kind: str  # float or int8
    threads: int
    networks: int
    median_percent: float
    worst_percent: float
    against: str
    date: str


@dataclass(frozen=True)
class Core:
    """A core with its usual memory; a board may have different memory."""

    name: str
    description: str
    order: str
    clock_mhz: int
    issue: Issue
    ports: Ports
    units: Mapping[str, Unit]
    operations: tuple[Operation, ...]
    rules: tuple[Rule, ...]
    l1i: Cache
    l1d: Cache
    l2: Cache
    l3: Cache | None
    tlb: Tlb
    misses: int  # outstanding L1 line misses
    prefetch: Prefetch
    stores: Stores
    branch: Branch
    dram: Dram
    sources: Mapping[str, str]
    vector_bits: int = 128  # of a vector register (VLEN for RVV)
    datapath_bits: int = 128  # of a vector computed at once
    features: tuple[str, ...] = ()  # besides the base of its instruction sets: see classes.h
    validation: tuple[Validation, ...] = ()


_PARTS = ("issue", "ports", "l1i", "l1d", "l2", "l3", "tlb", "prefetch", "stores", "branch", "dram")
_LISTS: Mapping[str, type[Any]] = {
    "operations": Operation,
    "rules": Rule,
    "validation": Validation,
}
_GROUPS = ("clock_mhz", "units", "operations", "misses", *_PARTS)  # each has a source


def core_names() -> list[str]:
    """The cores that have a timing model."""
    return sorted(p.stem for p in FOLDER.glob("*.toml"))


@functools.cache
def instruction_classes() -> Mapping[str, str]:
    """The classes of the plugin's decoders in numeric order, each with its parent class.

    A class without rows uses the figures of its parent.
    """
    text = _CLASSES.read_text(encoding="ascii")
    return dict(re.findall(r"\bX\((\w+), (\w+), \"", text))


@functools.cache
def load_core(name: str) -> Core:
    """Loads the core `name` and validates every figure."""
    path = FOLDER / f"{name}.toml"
    if not re.fullmatch(r"[a-z0-9]+", name) or not path.is_file():
        raise CoreError(f"expected a core ({', '.join(core_names())}), found '{name}'")
    return parse_core(name, path.read_text(encoding="utf-8"))


def parse_core(name: str, text: str) -> Core:
    """Parses the TOML text of a core."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CoreError(f"core '{name}': {error}") from None
    where = f"core '{name}'"
    parts: dict[str, Any] = {"name": name}
    for key, value in raw.items():
        if key == "units":
            parts[key] = {n: _parse(f"{where}: units.{n}", Unit, t) for n, t in value.items()}
        elif key in _LISTS:
            rows = (_parse(f"{where}: {key}[{n}]", _LISTS[key], r) for n, r in enumerate(value))
            parts[key] = tuple(rows)
        elif key in _PARTS:
            kinds = {"issue": Issue, "ports": Ports, "tlb": Tlb, "prefetch": Prefetch}
            kinds |= {"stores": Stores, "branch": Branch, "dram": Dram}
            parts[key] = _parse(f"{where}: {key}", kinds.get(key, Cache), value)
        else:
            parts[key] = value
    core: Core = _parse(where, Core, {"rules": (), "l3": None} | parts)
    _check_names(where, core)
    return core


def _parse(where: str, kind: type[_T], values: Any) -> _T:
    """Builds a dataclass from a TOML table: only known keys, all required ones, figures >= 0."""
    if not isinstance(values, dict):
        raise CoreError(f"{where}: expected a table, found {values!r}")
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(values) - set(known)):
        raise CoreError(f"{where}: unknown keys {', '.join(unknown)}")
    missing = [n for n, f in known.items() if f.default is MISSING and n not in values]
    if missing:
        raise CoreError(f"{where}: expected {', '.join(missing)}, which is missing")
    hints = get_type_hints(kind)
    return kind(**{n: _check_figure(f"{where}.{n}", n, hints[n], v) for n, v in values.items()})


def _check_figure(where: str, name: str, hint: Any, value: Any) -> Any:
    kinds: Any = getattr(hint, "__args__", (hint,))
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, bool):
        if bool not in kinds:
            raise CoreError(f"{where}: expected a figure, found {value}")
    elif isinstance(value, int | float):
        if (int not in kinds and float not in kinds) or value < 0 or value > 1 << 30:
            raise CoreError(f"{where}: expected a figure from 0 on, found {value}")
        if isinstance(value, float) and float not in kinds:
            raise CoreError(f"{where}: expected a whole number, found {value}")
    elif isinstance(value, str):
        choices = _CHOICES.get(name)
        if str not in kinds or (choices and name != "issue" and value not in choices):
            raise CoreError(f"{where}: expected {' or '.join(choices or ())}, found '{value}'")
        if name == "issue" and value not in ISSUE:
            raise CoreError(f"{where}: expected {' or '.join(ISSUE)}, found '{value}'")
    return value


def _check_names(where: str, core: Core) -> None:
    """Checks that units, classes and sources named by rows exist, and that every group has a
    source."""
    if not core.issue.width or not core.misses or not core.units:
        raise CoreError(f"{where}: expected a width, units and at least one outstanding miss")
    for cache in (core.l1i, core.l1d, core.l2, *([core.l3] if core.l3 else [])):
        if not cache.ways or cache.bytes % (64 * cache.ways):
            raise CoreError(f"{where}: {cache.bytes} bytes are not lines of {cache.ways} ways")
    without = [g for g in _GROUPS if g not in core.sources and getattr(core, g, 1) is not None]
    if without:
        raise CoreError(f"{where}: sources lack {', '.join(without)}")
    for row in core.operations:
        if row.unit is not None and row.unit not in core.units:
            raise CoreError(f"{where}: operation '{row.on}': no unit '{row.unit}'")
        if row.source is not None and row.source not in core.sources:
            raise CoreError(f"{where}: operation '{row.on}': no source '{row.source}'")
        list(selected(where, row.on))
    for rule in core.rules:
        if rule.source not in core.sources:
            raise CoreError(f"{where}: rule '{rule.on}': no source '{rule.source}'")
    if len({port for unit in core.units.values() for port in unit.ports}) > 32:
        raise CoreError(f"{where}: expected up to 32 ports")
    if len(core.rules) > 16:
        raise CoreError(f"{where}: expected up to 16 rules, found {len(core.rules)}")
    operation_table(core)


_SELECTOR = re.compile(r"([a-z0-9_*?]+)(?:@(\d+))?(?:/(\d+))?")
Selector = tuple[str, int, int]  # class, index of its width, index of its element


def selected(where: str, on: str) -> Iterator[Selector]:
    """Expands a selector; wildcards match only classes without a parent."""
    classes = instruction_classes()
    for word in on.split():
        match = _SELECTOR.fullmatch(word)
        pattern = match[1] if match else ""
        found = [c for c in classes if c == pattern]
        if "*" in pattern:
            roots = (c for c, like in classes.items() if c == like)
            found = [c for c in roots if fnmatch.fnmatch(c, pattern)]
        if not match or not found:
            raise CoreError(f"{where}: '{word}' selects no class[@width][/element]")
        widths = _indices_of(where, word, WIDTHS, match[2])
        elements = _indices_of(where, word, ELEMENTS, match[3])
        yield from ((c, w, e) for c in found for w in widths for e in elements)


def _indices_of(where: str, word: str, known: tuple[int, ...], text: str | None) -> Iterable[int]:
    if text is None:
        return range(len(known))
    if int(text) not in known:
        raise CoreError(f"{where}: '{word}': expected one of {known}, found {text}")
    return (known.index(int(text)),)


def operation_table(core: Core) -> dict[Selector, Operation]:
    """The timing of every class, width and element after applying all rows."""
    where = f"core '{core.name}'"
    rows: dict[Selector, list[Operation]] = {}
    for row in core.operations:
        for key in selected(where, row.on):
            rows.setdefault(key, []).append(row)
    table: dict[Selector, Operation] = {}
    for name in instruction_classes():
        for width in range(len(WIDTHS)):
            for element in range(len(ELEMENTS)):
                key = (name, width, element)
                table[key] = _timing_of(core, key, rows)
    return table


def _timing_of(core: Core, key: Selector, rows: Mapping[Selector, list[Operation]]) -> Operation:
    """One class's timing: its parent's, then its own rows."""
    name, width, element = key
    like = instruction_classes()[name]
    old = Operation(on="", cycles=1, uops=1, takes=1, issue="any")
    if like != name:
        old = _timing_of(core, (like, width, element), rows)
    for row in rows.get(key, ()):
        given = {k: v for k, v in asdict(row).items() if v is not None}
        # A new latency invalidates an older row's forwarding.
        forward = given.get("forward", None if "latency" in given else old.forward)
        old = replace(old, **(given | {"forward": forward}))
    where = f"core '{core.name}': class '{name}'"
    if old.unit is None or old.latency is None:
        raise CoreError(f"{where} has no unit or latency; begin with on = '*'")
    if not 1 <= (old.takes or 0) <= len(core.units[old.unit].ports):
        raise CoreError(f"{where} takes {old.takes} ports of unit '{old.unit}'")
    return old
