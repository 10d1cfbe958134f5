"""edgekit on the development host. Names are imported lazily, for fast startup."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.host.deploy.api import Device, compile_kernels, compile_model, connect
    from edgekit.host.deploy.bundle import Bundle

__all__ = ["Bundle", "Device", "compile_kernels", "compile_model", "connect"]

_HOMES = {
    "Bundle": "edgekit.host.deploy.bundle",
    "Device": "edgekit.host.deploy.api",
    "compile_kernels": "edgekit.host.deploy.api",
    "compile_model": "edgekit.host.deploy.api",
    "connect": "edgekit.host.deploy.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'edgekit.host' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
