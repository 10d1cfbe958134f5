"""Importers: file formats → `Graph`. All validation of untrusted input is in this package."""

from edgekit.host.compiler.frontends.common.open_shapes import Shapes
from edgekit.host.compiler.frontends.model import (
    check_signatures,
    import_model,
    model_files,
    model_hash,
    outline_model,
    signatures_of,
)

__all__ = [
    "Shapes",
    "check_signatures",
    "import_model",
    "model_files",
    "model_hash",
    "outline_model",
    "signatures_of",
]
