"""Timing models of cores: one TOML file per core, with a source for every figure.

A core may inherit from one like it: its own figures and sources replace those of the other, and its
rows of operations follow the other's. Figures are documented in core_parts.py;
simulator/core_text.py writes them for the plugin.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from edgekit.kb.targets.core_parts import (
    Branch,
    Cache,
    Dram,
    Issue,
    Operation,
    Ports,
    Prefetch,
    Rule,
    Stores,
    Tlb,
    Unit,
    Validation,
)

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
    inherits: str = ""
    emulated: str = ""  # QEMU's CPU with its instructions; "": the one of its name or base


_PARTS = ("issue", "ports", "l1i", "l1d", "l2", "l3", "tlb", "prefetch", "stores", "branch", "dram")
_LISTS: Mapping[str, type[Any]] = {
    "operations": Operation,
    "rules": Rule,
    "validation": Validation,
}
_GROUPS = ("clock_mhz", "units", "operations", "misses", *_PARTS)  # each has a source


@functools.cache  # costs ask for them per operator and method
def core_names() -> tuple[str, ...]:
    """The cores that have a timing model."""
    return tuple(sorted(p.stem for p in FOLDER.glob("*.toml")))


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
    return parse_core(name, _text_of(name))


def _text_of(name: str) -> str:
    path = FOLDER / f"{name}.toml"
    if not re.fullmatch(r"[a-z0-9]+", name) or not path.is_file():
        raise CoreError(f"expected a core ({', '.join(core_names())}), found '{name}'")
    return path.read_text(encoding="utf-8")


def parse_core(name: str, text: str) -> Core:
    """Parses the TOML text of a core."""
    raw = _with_inherited(name, text)
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


def _with_inherited(name: str, text: str) -> dict[str, Any]:
    """The tables of a core over those of the core that it inherits from, without the latter's
    validation."""
    try:
        own = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CoreError(f"core '{name}': {error}") from None
    if "inherits" not in own:
        return own
    base = str(own["inherits"])
    raw = _with_inherited(base, _text_of(base))
    raw.pop("validation", None)
    for key, value in own.items():
        if key == "operations":
            value = [*raw[key], *value]
        elif isinstance(value, dict) and isinstance(raw.get(key), dict):
            value = raw[key] | value
        raw[key] = value
    return raw


def _parse(where: str, kind: type[_T], values: Any) -> _T:
    """Builds a dataclass from a TOML table: only known keys, all required ones, figures >= 0."""
    if not isinstance(values, dict):
        raise CoreError(f"{where}: expected a table, found {values!r}")
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(values) - set(known)):
        raise CoreError(f"{where}: expected known keys, found {', '.join(unknown)}")
    missing = [n for n, f in known.items() if f.default is MISSING and n not in values]
    if missing:
        raise CoreError(f"{where}: expected {', '.join(missing)}, found none")
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
            raise CoreError(f"{where}: expected a figure of 0 or more, found {value}")
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
        raise CoreError(
            f"{where}: expected a width, units and at least one outstanding miss, "
            "found one of them missing"
        )
    for cache in (core.l1i, core.l1d, core.l2, *([core.l3] if core.l3 else [])):
        if not cache.ways or cache.bytes % (64 * cache.ways):
            raise CoreError(
                f"{where}: expected a cache of full sets, found {cache.bytes} bytes in "
                f"{cache.ways} ways"
            )
    without = [g for g in _GROUPS if g not in core.sources and getattr(core, g, 1) is not None]
    if without:
        raise CoreError(f"{where}: expected sources of {', '.join(without)}, found none")
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
        raise CoreError(f"{where}: expected up to 32 ports, found more")
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
    rows: dict[Selector, list[dict[str, Any]]] = {}
    for row in core.operations:
        given = {name: value for name, value in vars(row).items() if value is not None}
        for key in selected(where, row.on):
            rows.setdefault(key, []).append(given)
    table: dict[Selector, Operation] = {}
    for name in instruction_classes():
        for width in range(len(WIDTHS)):
            for element in range(len(ELEMENTS)):
                key = (name, width, element)
                table[key] = _timing_of(core, key, rows)
    return table


def _timing_of(
    core: Core, key: Selector, rows: Mapping[Selector, list[dict[str, Any]]]
) -> Operation:
    """One class's timing: its parent's, then its own rows."""
    name, width, element = key
    like = instruction_classes()[name]
    old = Operation(on="", cycles=1, uops=1, takes=1, issue="any")
    if like != name:
        old = _timing_of(core, (like, width, element), rows)
    for given in rows.get(key, ()):
        # A new latency invalidates an older row's forwarding.
        forward = given.get("forward", None if "latency" in given else old.forward)
        old = replace(old, **(given | {"forward": forward}))
    where = f"core '{core.name}': class '{name}'"
    if old.unit is None or old.latency is None:
        raise CoreError(f"{where} has no unit or latency; begin with on = '*'")
    if not 1 <= (old.takes or 0) <= len(core.units[old.unit].ports):
        raise CoreError(f"{where} takes {old.takes} ports of unit '{old.unit}'")
    return old
