"""Reads the metadata that Ultralytics' exporter writes into .onnx and .tflite files, or next to
them."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.host.compiler.frontends.formats import format_of
from edgekit.host.compiler.frontends.onnx.file import onnx_metadata
from edgekit.host.compiler.inputs import read_attached
from edgekit.host.compiler.sidecars import ULTRALYTICS, config_folder, read_yaml_sidecar

# In the archive at the end of a .tflite file; the last is YOLOv5's and YOLOv9's.
_FILES = ("metadata.json", "temp_meta.txt", "meta.txt")
_MOST_TEXT = 1 << 20
_MOST_LABEL = 128  # characters
_MOST_POINTS = 256
_MOST_PIXELS = 8192  # along an edge


@dataclass(frozen=True)
class Ultralytics:
    """`task` as Ultralytics names it, which YOLOv5's files do not, and the names of the classes;
    empty if unknown. `points` of a pose, and numbers of each: 2, or 3 with its visibility.
    `size`: height and width of the picture. `source`: where it is stated."""

    task: str = ""
    labels: tuple[str, ...] = ()
    points: tuple[int, int] = (0, 0)
    size: tuple[int, ...] = ()
    source: str = "the file's metadata"


def read_ultralytics(path: Path) -> Ultralytics:
    """The metadata of a model file, or else of metadata.yaml next to it; empty if none can be
    read."""
    if format_of(path) == "onnx":
        found: Mapping[str, Any] = onnx_metadata(path)
    else:
        found = next(filter(None, map(_parse, _attached_texts(path))), {})
    source = Ultralytics.source
    if "names" not in found:
        found, source = read_yaml_sidecar(config_folder(path) / ULTRALYTICS), ULTRALYTICS
    names, task = _value(found.get("names")), found.get("task")
    task = task if isinstance(task, str) else ""
    names = dict(enumerate(names)) if isinstance(names, list) else names  # of old YOLOv5
    # Other exporters write entries of these names, too.
    if not isinstance(names, dict) or not (task or "stride" in found):
        return Ultralytics()
    by_number = {str(key): str(value) for key, value in names.items()}
    ordered = tuple(by_number.get(str(i), "")[:_MOST_LABEL] for i in range(len(by_number)))
    labels = ordered if all(map(str.isprintable, ordered)) else ()
    points = _points(_value(found.get("kpt_shape")))
    return Ultralytics(task, labels, points, _size(found), source)


def _size(found: Mapping[str, Any]) -> tuple[int, ...]:
    value = _value(found.get("imgsz"))
    if not isinstance(value, list | tuple) or len(value) != 2:
        return ()
    return tuple(value) if all(type(n) is int and 0 < n <= _MOST_PIXELS for n in value) else ()


def _points(value: Any) -> tuple[int, int]:
    known = isinstance(value, list | tuple) and len(value) == 2 and value[1] in (2, 3)
    if not known or not isinstance(value[0], int) or not 0 < value[0] <= _MOST_POINTS:
        return 0, 0
    return value[0], value[1]


def _attached_texts(path: Path) -> list[str]:
    files = read_attached(path).files
    return [files[name].decode("utf-8", "replace") for name in _FILES if name in files]


def _parse(text: str) -> dict[str, Any]:
    made = _value(text)
    return made if isinstance(made, dict) else {}


def _value(text: Any) -> Any:
    """The value of JSON or of a Python literal; the text itself is not one."""
    if not isinstance(text, str) or len(text) > _MOST_TEXT:
        return None if isinstance(text, str) else text
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None
