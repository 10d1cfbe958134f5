"""Importers: file formats → `Graph`. All validation of untrusted input is in this package."""

from edgekit.host.compiler.frontends.caffe.operators import caffe_operators
from edgekit.host.compiler.frontends.common.open_shapes import Shapes
from edgekit.host.compiler.frontends.model import (
    check_signatures,
    import_model,
    model_files,
    model_hash,
    outline_model,
    signatures_of,
)
from edgekit.host.compiler.frontends.onnx.operators import onnx_operators
from edgekit.host.compiler.frontends.tflite.importer import supported_operators

__all__ = [
    "Shapes",
    "caffe_operators",
    "check_signatures",
    "import_model",
    "model_files",
    "model_hash",
    "onnx_operators",
    "outline_model",
    "signatures_of",
    "supported_operators",
]
