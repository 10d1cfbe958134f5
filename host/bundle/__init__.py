"""Bundles: everything a board needs to run one model, in one reproducible file."""

from edgekit.host.bundle.build import build_bundle
from edgekit.host.bundle.bundle import Bundle
from edgekit.host.bundle.pyz import runtime_pyz
from edgekit.host.bundle.sign import SigningKey, host_key, sign_bundle, signing_key

__all__ = [
    "Bundle",
    "SigningKey",
    "build_bundle",
    "host_key",
    "runtime_pyz",
    "sign_bundle",
    "signing_key",
]
