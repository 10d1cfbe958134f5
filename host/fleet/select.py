"""Selects boards of the inventory: `type=a57,site!=lab,name=pi-*`.

Terms of one selection are ANDed; several selections are ORed. A board matches by its labels, by its
fields (`name`, `profile`, `host`, `transport`), and by `type`, which is its profile unless a label
overrides it. A key or value that no board has is an error that lists the known ones: a typo must
not silently select all boards, or none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from edgekit.host.deploy.inventory import BoardEntry, boards
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import nearest

_TERM = re.compile(r"(?P<key>[A-Za-z0-9][A-Za-z0-9._-]*)(?:(?P<sign>!=|==?)(?P<value>[^\s,=!]+))?")
_MOST_SHOWN = 8  # values listed in a message
_SSH_PORT = 22


@dataclass(frozen=True)
class Term:
    """One of `key`, `!key`, `key=pattern`, `key!=pattern`; `pattern` is "" for the first two."""

    key: str
    pattern: str
    negative: bool

    def holds(self, known: Mapping[str, str]) -> bool:
        """Whether a board with these properties matches."""
        found = known.get(self.key)
        there = found is not None and (not self.pattern or fnmatchcase(found, self.pattern))
        return there != self.negative

    def __str__(self) -> str:
        if not self.pattern:
            return f"{'!' * self.negative}{self.key}"
        return f"{self.key}{'!' * self.negative}={self.pattern}"


def parse_selection(text: str) -> tuple[Term, ...]:
    """Parses the terms of one selection. Raises InputError for the first invalid one."""
    terms = []
    for part in text.split(","):
        word = part.strip()
        bare = word.removeprefix("!")
        found = _TERM.fullmatch(bare)
        if found is None or (bare != word and found["value"]):
            raise InputError(
                "--select: expected KEY=VALUE, KEY!=VALUE, KEY or !KEY between commas (values may "
                f"hold * and ?), found '{word}' in '{text}'"
            )
        negative = bare != word or found["sign"] == "!="
        terms.append(Term(found["key"], found["value"] or "", negative))
    return tuple(terms)


def select(wanted: Sequence[str], folder: Path) -> tuple[BoardEntry, ...]:
    """The boards in the inventory of `folder` that match `wanted`, by name; all if it is empty.

    InputError if a selection matches nothing, listing the known keys or values, or if two boards
    share an address: they would be one board used from two sides at once.
    """
    there = boards(folder)
    if not there:
        raise InputError(
            "expected boards in the inventory, found none; "
            "add some: edgekit fleet add --csv FILE, or --ssh 'HOST*'"
        )
    known = {entry.name: entry.facts() for entry in there}
    names: set[str] = set()
    for text in wanted:
        names |= _select(text, known)
    chosen = tuple(entry for entry in there if not wanted or entry.name in names)
    check_places(chosen)
    return chosen


def check_places(entries: Sequence[BoardEntry]) -> None:
    """Raises InputError if two entries are the same board: same address and user, or same
    device."""
    seen: dict[tuple[object, ...], str] = {}
    for entry in entries:
        first = seen.setdefault(place(entry), entry.name)
        if first != entry.name:
            where = entry.device or f"{entry.host}:{entry.port or _SSH_PORT}"
            raise InputError(
                f"expected each board once, found '{first}' and '{entry.name}' both at {where}; "
                f"leave one out (--select 'name!={entry.name}') or remove it: "
                f"edgekit board remove {entry.name}"
            )


def place(entry: BoardEntry) -> tuple[object, ...]:
    """Identity of a board's location: equal for two entries of one board."""
    if entry.transport == "serial":
        return ("serial", entry.device)
    if entry.transport == "local":
        return ("local", entry.name)
    return ("ssh", entry.host, entry.port or _SSH_PORT, entry.user)


def _select(text: str, known: Mapping[str, Mapping[str, str]]) -> set[str]:
    terms = parse_selection(text)
    for term in terms:
        _check_term(term, known)
    names = {name for name, has in known.items() if all(term.holds(has) for term in terms)}
    if not names:
        alone = (f"{term} has {sum(term.holds(has) for has in known.values())}" for term in terms)
        raise InputError(
            f"--select {text}: expected boards that match, found none: of {len(known)} "
            f"boards, {', '.join(alone)}, and none matches all; see them: edgekit boards"
        )
    return names


def _check_term(term: Term, known: Mapping[str, Mapping[str, str]]) -> None:
    """Raises InputError for a key or value that no board has."""
    keys = sorted({key for has in known.values() for key in has})
    if term.key not in keys:
        raise InputError(
            f"--select {term}: expected a label that boards have ({', '.join(keys)}), "
            f"found '{term.key}'{nearest(term.key, keys)}"
        )
    values = Counter(has[term.key] for has in known.values() if term.key in has)
    if term.pattern and not any(fnmatchcase(value, term.pattern) for value in values):
        most = ", ".join(f"{v} ({n})" for v, n in values.most_common(_MOST_SHOWN))
        more = f" and {len(values) - _MOST_SHOWN} more" if len(values) > _MOST_SHOWN else ""
        raise InputError(
            f"--select {term}: expected a {term.key} that boards have, found none that is "
            f"'{term.pattern}'; known values: {most}{more}"
        )
