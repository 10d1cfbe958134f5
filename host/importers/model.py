"""Finds the importer for a model file by its content."""

from __future__ import annotations

from pathlib import Path

from edgekit.host.errors import InputError
from edgekit.host.graph.types import Graph
from edgekit.host.importers.files import read_model_file
from edgekit.host.importers.tflite import import_tflite
from edgekit.host.importers.tflite_schema import is_tflite


def import_model(path: Path) -> Graph:
    """Reads a model of any supported format. Raises `InputError` with one line."""
    if is_tflite(read_model_file(path)):
        return import_tflite(path)
    if path.suffix == ".onnx":
        raise InputError(f"{path.name}: expected a .tflite model, found ONNX; ONNX comes later")
    raise InputError(f"{path.name}: expected a .tflite model, found another kind of file")
