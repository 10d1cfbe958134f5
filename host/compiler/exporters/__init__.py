"""Writes a `Graph`, as importers produce it, to file formats of other engines."""

from edgekit.host.compiler.exporters.onnx.writer import write_onnx
from edgekit.host.compiler.exporters.tflite.writer import write_tflite

__all__ = ["write_onnx", "write_tflite"]
