"""Reads YAML as exporters of models write it: mappings and lists in lines, with plain values."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import Any

_ENTRY = re.compile(r"""('[^']*'|"[^"]*"|[^\s'"#\[{][^#]*?):(?:\s+(.*))?$""")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_DEEPEST = 32


@dataclass
class _Lines:
    """Indents and texts of the lines that say something, and the number of the next one."""

    lines: list[tuple[int, str]]
    at: int = 0

    @property
    def indent(self) -> int:
        """That of the next line; -1 at the end."""
        return self.lines[self.at][0] if self.at < len(self.lines) else -1

    @property
    def is_item(self) -> bool:
        return self.at < len(self.lines) and f"{self.lines[self.at][1]} ".startswith("- ")


def read_yaml(text: str) -> dict[str, Any]:
    """A mapping; empty for other texts, and for forms that such exporters do not write."""
    lines = []
    for line in text.splitlines():
        plain = line.rstrip()
        if plain.strip() and not plain.lstrip().startswith("#") and plain != "---":
            lines.append((len(plain) - len(plain.lstrip(" ")), plain.lstrip(" ")))
    source = _Lines(lines)
    try:
        made = _block(source, source.indent, 0) if lines else {}
    except ValueError:
        return {}
    return made if isinstance(made, dict) and source.indent < 0 else {}


def _block(source: _Lines, indent: int, depth: int) -> Any:
    """The mapping or list whose lines have this indent. Raises ValueError."""
    if depth > _DEEPEST:
        raise ValueError("nested too deep")
    if source.is_item:
        items = []
        while source.indent == indent and source.is_item:
            _, text = source.lines[source.at]
            inner = text[1:].lstrip(" ")
            if _ENTRY.match(inner):  # a mapping that begins here
                within = indent + len(text) - len(inner)
                source.lines[source.at] = within, inner
                items.append(_block(source, within, depth + 1))
            else:
                source.at += 1
                items.append(_plain(inner))
        return items
    made: dict[str, Any] = {}
    while source.indent == indent and not source.is_item:
        found = _ENTRY.match(source.lines[source.at][1])
        if found is None:
            raise ValueError("no entry")
        source.at += 1
        made[str(_scalar(found[1]))] = _value_of(found[2], source, indent, depth)
    return made


def _value_of(text: str | None, source: _Lines, indent: int, depth: int) -> Any:
    """That behind a key, or in the lines below it; a list may be as far to the left as the key."""
    if text:
        return _plain(text)
    if source.indent > indent or (source.indent == indent and source.is_item):
        return _block(source, source.indent, depth + 1)
    return None


def _plain(text: str) -> Any:
    """A number, a word, or a list or mapping in one line as JSON or Python writes it."""
    if not text.startswith(("'", '"', "[", "{")):
        return _scalar(re.sub(r"\s+#.*", "", text))
    return _scalar(text)


def _scalar(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text.startswith("'") and text.endswith("'") and len(text) > 1:
        return text[1:-1].replace("''", "'")
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return text
