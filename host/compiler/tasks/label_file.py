"""Reads the names of classes from a text file next to a model."""

from __future__ import annotations

import re
from pathlib import Path

from edgekit.host.compiler.inputs.metadata import label_lines

_OWN = ("{0}.labels", "{0}.names", "{0}.txt", "{0}_labels.txt", "{0}-labels.txt", "{0}.labels.txt")
# Names of files that say nothing of the model; they count if no other model is in the folder.
_COMMON = (
    "labels.txt", "label.txt", "labelmap.txt", "label_map.txt", "classes.txt", "class_names.txt",
    "coco.names", "obj.names", "imagenet_classes.txt",
)  # fmt: skip
_MODELS = (".tflite", ".onnx", ".prototxt")
_MOST_BYTES = 1 << 20
_MOST_LABEL = 128  # characters
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


def _names_for(path: Path) -> list[str]:
    names = [name.format(path.stem) for name in _OWN]
    try:
        models = [file for file in path.parent.iterdir() if file.suffix in _MODELS]
    except OSError:
        return names
    return [*names, *_COMMON] if len(models) == 1 else names


def _read(file: Path) -> tuple[str, ...]:
    """One label per line, without the numbers if the lines are numbered in order."""
    try:
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            return ()
        lines = label_lines(file.read_bytes())
    except (OSError, ValueError):
        return ()
    while lines and not lines[-1]:
        lines = lines[:-1]
    parts = [_NUMBERED.fullmatch(line) for line in lines]
    numbered = [(int(part[1]), part[2]) for part in parts if part]
    if [number for number, _ in numbered] == list(range(len(lines))):
        lines = tuple(label for _, label in numbered)
    fits = all(line.isprintable() and len(line) <= _MOST_LABEL for line in lines)
    return lines if fits else ()
