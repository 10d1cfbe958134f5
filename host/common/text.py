"""Makes text for display: untrusted text from boards and hostile files, and numbers of things."""

from __future__ import annotations

LONGEST = 2000  # characters of one line


def printable(text: str, most: int = LONGEST) -> str:
    """`text` without anything a terminal would interpret, truncated to `most` characters.

    Nonprintable characters (control characters, line ends, bidirectional marks) are shown as
    Python escapes: \\x1b.
    """
    cut = text if len(text) <= most else f"{text[:most]}…"
    return cut if cut.isprintable() else "".join(map(_escape, cut))


def one_line(text: str) -> str:
    """`text` collapsed to one line and made `printable`."""
    return printable(" ".join(text.split()))


def counted(count: int, one: str, several: str = "") -> str:
    """A number of things: 1 board, 2 boards; `several` where the plural does not add an s."""
    return f"{count} {one if count == 1 else several or f'{one}s'}"


def _escape(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]
