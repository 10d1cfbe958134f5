"""Text of others - boards, hostile files - as it may be shown."""

from __future__ import annotations

LONGEST = 2000  # characters of one line


def printable(text: str, most: int = LONGEST) -> str:
    """`text` with nothing in it that a terminal would act on, cut after `most` characters.

    What cannot be printed (control characters, line ends, marks of writing direction) is shown as
    Python escapes it: \\x1b.
    """
    cut = text if len(text) <= most else f"{text[:most]}…"
    return cut if cut.isprintable() else "".join(map(_escaped, cut))


def one_line(text: str) -> str:
    """`text` in one line, as `printable` shows it."""
    return printable(" ".join(text.split()))


def _escaped(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]
