"""Bundles: everything a board needs to run one model, in one reproducible file."""

from edgekit.host.bundle.build import build_bundle
from edgekit.host.bundle.bundle import Bundle
from edgekit.host.bundle.pyz import runtime_pyz

__all__ = ["Bundle", "build_bundle", "runtime_pyz"]
