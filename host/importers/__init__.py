"""File formats → `Graph`. All distrust of input lives in this folder."""

from edgekit.host.importers.caffe_operators import caffe_operators
from edgekit.host.importers.model import import_model, model_files, model_hash, outline_model
from edgekit.host.importers.onnx_operators import onnx_operators
from edgekit.host.importers.open_shapes import Shapes
from edgekit.host.importers.tflite import supported_operators

__all__ = [
    "Shapes",
    "caffe_operators",
    "import_model",
    "model_files",
    "model_hash",
    "onnx_operators",
    "outline_model",
    "supported_operators",
]
