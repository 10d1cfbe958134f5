"""Types of arguments that scripts share."""

from __future__ import annotations


def split_names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def split_numbers(text: str) -> list[int]:
    return [int(number) for number in split_names(text)]
