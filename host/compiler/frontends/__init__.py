"""Importers: file formats → `Graph`. All validation of untrusted input is in this package."""

from edgekit.host.compiler.frontends.formats import model_files, model_hash
from edgekit.host.compiler.frontends.model import (
    check_signatures,
    import_model,
    outline_model,
    signatures_of,
)

__all__ = [
    "check_signatures",
    "import_model",
    "model_files",
    "model_hash",
    "outline_model",
    "signatures_of",
]
