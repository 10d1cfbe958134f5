"""File formats → `Graph`. All distrust of input lives in this folder."""

from edgekit.host.importers.model import import_model
from edgekit.host.importers.tflite_operators import supported_operators

__all__ = ["import_model", "supported_operators"]
