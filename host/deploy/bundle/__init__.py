"""Bundles: everything a board needs to run one model, in one reproducible file."""

from edgekit.host.deploy.bundle.build import build_bundle
from edgekit.host.deploy.bundle.bundle import Bundle
from edgekit.host.deploy.bundle.pyz import runtime_pyz
from edgekit.host.deploy.bundle.sign import (
    SigningKey,
    host_key,
    sign_bundle,
    sign_data,
    signing_key,
)

__all__ = [
    "Bundle",
    "SigningKey",
    "build_bundle",
    "host_key",
    "runtime_pyz",
    "sign_bundle",
    "sign_data",
    "signing_key",
]
