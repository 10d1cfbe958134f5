"""Packs the board's runtime into one file, from the installed edgekit.device package."""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from edgekit.host.deploy.bundle.archive import archive_bytes

# Matches imports from edgekit.device and its subpackages anywhere; captures package and names.
_IMPORT = re.compile(
    rb"^\s*from edgekit\.device((?:\.\w+)*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE
)
_FIRST = (
    "runtime/bytecode.py",
    "runtime/agent/commands.py",
    "runtime/application/__init__.py",
)
_OF_KERNELS = ("runtime/agent/kernels_check.py", "runtime/application/kernels.py")

CHECK_PYTHON = """import sys

if sys.version_info < (3, 9):
    sys.stdout.write(
        '{"error": {"kind": "incompatible", "message": "expected Python 3.9 or newer on the board, '
        'found %d.%d; install a newer python3"}}\\n' % sys.version_info[:2]
    )
    sys.exit(5)
"""

# The link `current` may be swapped during startup: all modules must come from the same file.
_START = (
    CHECK_PYTHON.encode()
    + b"""import gc
import os

gc.set_threshold(10_000)  # imports leave no garbage, and looking for it takes a tenth of a start
sys.path[0] = os.path.realpath(sys.path[0])

from edgekit.device.runtime.bytecode import keep_bytecode, use_bytecode

use_bytecode()

from edgekit.device.runtime.agent.commands import main

code = main()
try:
    keep_bytecode()
except KeyboardInterrupt:
    pass  # the answer was given
os._exit(code)  # it is flushed, and taking all modules down takes another tenth
"""
)

# For programs on the board that have this file on their path. Imports everything eagerly, because a
# later release may delete the file.
_MODULE = b'''"""Deployed models in a program on the board; see docs/applications.md of edgekit."""

from edgekit.device.runtime.bytecode import keep_bytecode, use_bytecode

use_bytecode()

from edgekit.device.runtime.application import *
from edgekit.device.runtime.application import __all__, __getattr__
%s
keep_bytecode()
'''
_PRODUCTS = b"from edgekit.device.runtime.application.kernels import *"


@functools.cache
def runtime_pyz(kernels: bool = False) -> bytes:
    """Returns a zip that `python3 runtime.pyz` runs, reproducible for the same package. With
    `kernels`, the runtime of a release of kernels.

    Contains only the modules that the commands and applications import: over a serial console each
    extra module takes seconds. Folders need their own entries, otherwise zipimport does not find
    namespace packages.
    """
    package = importlib.resources.files("edgekit.device")
    # The package's API for the user's programs is not part of the board's runtime.
    modules = {"__init__.py": (package / "__init__.py").read_bytes()}
    wanted = [*_FIRST, *(_OF_KERNELS if kernels else ())]
    while wanted:
        name = wanted.pop()
        if name not in modules:
            modules[name] = (package / name).read_bytes()
            wanted += _imported_modules(package, modules[name])
            wanted += [f"{folder}/__init__.py" for folder in _parent_folders(name)]
    folders = {folder for name in modules for folder in _parent_folders(name)}
    entries = [
        ("__main__.py", _START),
        ("edgekit_runtime.py", _MODULE % (_PRODUCTS if kernels else b"")),
    ]
    entries += [("edgekit/", b""), ("edgekit/device/", b"")]
    entries += [(f"edgekit/device/{name}/", b"") for name in sorted(folders)]
    entries += [(f"edgekit/device/{name}", data) for name, data in sorted(modules.items())]
    return archive_bytes(entries)


def _parent_folders(name: str) -> list[str]:
    """Returns the folders that contain a module: a/b.py → [a]."""
    return [str(folder) for folder in PurePosixPath(name).parents][:-1]


def _imported_modules(package: Traversable, source: bytes) -> Iterator[str]:
    """Yields the edgekit.device module files that `source` imports, including inside functions."""
    for dotted, several, one in _IMPORT.findall(source):
        place = dotted.decode().strip(".").replace(".", "/")
        if (package / place).is_dir():
            names = [name.strip() for name in (several or one).decode().split(",")]
            yield from (f"{place}/{name}.py".strip("/") for name in names if name)
        else:
            yield f"{place}.py"
