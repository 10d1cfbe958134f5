"""Packages that not every installation has: each belongs to an extra of pyproject.toml."""

from __future__ import annotations

import importlib
from typing import Any

from edgekit.host.common.paths import install_command
from edgekit.host.errors import InputError

# By the name of the import: what pip calls it, and the extra that installs it.
EXTRAS = {
    "PIL": ("Pillow", "demo"),
    "cryptography": ("cryptography", "profiles"),
    "distributed": ("distributed", "fleet"),
    "duckdb": ("duckdb", "profiles"),
    "google": ("protobuf", "caffe"),
    "nats": ("nats-py", "fleet"),
    "onnx": ("onnx", "onnx"),
    "pyarrow": ("pyarrow", "profiles"),
}


def optional(*modules: str) -> tuple[Any, ...]:
    """Imports modules of an optional package.

    Raises InputError, which says how to install the package, if an import fails.
    """
    try:
        return tuple(importlib.import_module(module) for module in modules)
    except ImportError as error:
        raise missing_package(modules[0], error) from None


def missing_package(module: str, error: ImportError) -> InputError:
    """The error for a module of an optional package that cannot be imported."""
    name, extra = EXTRAS[module.partition(".")[0]]
    found = "none" if isinstance(error, ModuleNotFoundError) else f"a broken one ({error})"
    return InputError(
        f"expected the Python package {name}, found {found}; install it: {install_command(extra)}"
    )


def is_optional(module: str | None) -> bool:
    """Whether a module belongs to an optional package."""
    return (module or "").partition(".")[0] in EXTRAS
