"""Finds the importer for a model file by its content."""

from __future__ import annotations

from pathlib import Path

from edgekit.host.errors import InputError
from edgekit.host.graph.types import Graph
from edgekit.host.importers.files import read_start
from edgekit.host.importers.tflite import import_tflite
from edgekit.host.importers.tflite_schema import is_tflite

_ONNX_START = b"\x08"  # ir_version, the first field of an ONNX model


def import_model(path: Path) -> Graph:
    """Reads a model of any supported format. Raises `InputError` with one line."""
    start = read_start(path)
    if is_tflite(start):
        return import_tflite(path)
    if path.suffix == ".onnx" or start.startswith(_ONNX_START):
        raise InputError(
            f"{path.name}: expected a .tflite model, found ONNX, which comes in a later version; "
            "convert the model to .tflite"
        )
    raise InputError(
        f"{path.name}: expected a .tflite model (TFL3 at byte 4), found {start[4:8]!r} there; "
        "give a TensorFlow Lite file"
    )
