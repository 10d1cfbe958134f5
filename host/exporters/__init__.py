"""`Graph` → file formats that other engines run; what importers give, before any pass."""

from edgekit.host.exporters.onnx import write_onnx
from edgekit.host.exporters.tflite import write_tflite

__all__ = ["write_onnx", "write_tflite"]
