"""Reads the names of classes from a text file next to a model."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from edgekit.host.compiler.frontends.formats import format_of
from edgekit.host.compiler.frontends.onnx.file import onnx_metadata
from edgekit.host.compiler.inputs.metadata import label_lines
from edgekit.host.compiler.sidecars import (
    COMMON_LABELS,
    OWN_LABELS,
    other_label_files,
    read_sidecar,
)

_MODELS = (".tflite", ".lite", ".onnx", ".prototxt")
_MOST_BYTES = 1 << 20
_MOST_LABEL = 128  # characters
_MOST_DIGITS = 5  # of the number of a label
_COLUMNS = {"display_name", "name"}  # of AudioSet's class maps, and of lists of tags
_NUMBERED = re.compile(r"(\d+)(?::\s*|\s+)(\S.*)")  # Teachable Machine's lines: "0 cat"
# The first line of lists that count from 1.
NOTHING = ("???", "background", "__background__")


def read_label_file(path: Path) -> tuple[tuple[str, ...], str]:
    """The labels and the name of their file; both empty if none is certainly this model's."""
    for name in _names_for(path):
        labels = _read(path.parent / name)
        if labels:
            return labels, name
    return (), ""


def listed_characters(path: Path) -> str:
    """What PaddlePaddle's exporters list in an .onnx file's metadata, one in each line: characters,
    or the labels of classes; empty if there is nothing."""
    return onnx_metadata(path).get("character", "") if format_of(path) == "onnx" else ""


def _names_for(path: Path) -> list[str]:
    names = [name.format(path.stem) for name in OWN_LABELS]
    try:
        models = [file for file in path.parent.iterdir() if file.suffix in _MODELS]
    except OSError:
        return names
    if len(models) != 1:
        return names
    others = [file.name for file in other_label_files(path) if file.name not in COMMON_LABELS]
    return [*names, *COMMON_LABELS, *(others if len(others) == 1 else ())]


def _read(file: Path) -> tuple[str, ...]:
    """One label per line, without the numbers if the lines are numbered from 0 in order, and empty
    ones for numbers that are left out; of a class map, its column of names."""
    data = read_sidecar(file, _MOST_BYTES)
    try:
        lines = label_lines(data or b"")
        if file.suffix == ".csv":
            rows = csv.DictReader(lines)
            names = {*(rows.fieldnames or ())}
            (column,) = names if len(names) == 1 else _COLUMNS & names
            lines = tuple(row[column] or "" for row in rows)
    except (ValueError, KeyError, csv.Error):
        return ()
    while lines and not lines[-1]:
        lines = lines[:-1]
    parts = [_NUMBERED.fullmatch(line) for line in lines]
    numbered = {int(part[1]): part[2] for part in parts if part and len(part[1]) <= _MOST_DIGITS}
    if (
        len(numbered) == len(lines)
        and next(iter(numbered), 1) == 0
        and [*numbered] == sorted(numbered)
    ):
        lines = tuple(numbered.get(i, "") for i in range(max(numbered) + 1))
    fits = all(line.isprintable() and len(line) <= _MOST_LABEL for line in lines)
    return lines if fits else ()
