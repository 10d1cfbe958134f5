"""File formats → `Graph`. All distrust of input lives in this folder."""

from edgekit.host.importers.model import import_model

__all__ = ["import_model"]
