"""`Graph` → file formats that other engines run; what importers give, before any pass."""

from edgekit.host.compiler.exporters.onnx.writer import write_onnx
from edgekit.host.compiler.exporters.tflite.writer import write_tflite

__all__ = ["write_onnx", "write_tflite"]
