"""The board's runtime as one file, made of the installed edgekit.device package."""

from __future__ import annotations

import functools
import importlib.resources
import re

from edgekit.host.bundle.archive import archive_bytes

# `from edgekit.device.x import y` and `from edgekit.device import x, y`, wherever they stand.
_IMPORT = re.compile(rb"^\s*from edgekit\.device(?:\.(\w+)| import ([\w, ]+))", re.MULTILINE)

# The link `current` may be swapped while this starts: modules must all come from one file.
_START = b"""import os
import sys

if sys.version_info < (3, 9):
    sys.stdout.write(
        '{"error": {"kind": "incompatible", "message": "expected Python 3.9 or newer on the board, '
        'found %d.%d; install a newer python3"}}\\n' % sys.version_info[:2]
    )
    sys.exit(5)

sys.path[0] = os.path.realpath(sys.path[0])

from edgekit.device.__main__ import main

sys.exit(main())
"""


@functools.cache
def runtime_pyz() -> bytes:
    """A zip that `python3 runtime.pyz` runs; the same bytes for the same package.

    Only what the commands import goes in: a serial console takes seconds for each module more.
    Folders need entries of their own: without them zipimport does not see namespace packages.
    """
    package = importlib.resources.files("edgekit.device")
    # What the package offers to programs of the user's is not for the board's runtime.
    modules = {"__init__": (package / "__init__.py").read_bytes()}
    wanted = ["__main__"]
    while wanted:
        name = wanted.pop()
        if name not in modules:
            modules[name] = (package / f"{name}.py").read_bytes()
            wanted += _imported(modules[name])
    entries = [("__main__.py", _START), ("edgekit/", b""), ("edgekit/device/", b"")]
    entries += [(f"edgekit/device/{name}.py", data) for name, data in sorted(modules.items())]
    return archive_bytes(entries)


def _imported(source: bytes) -> list[str]:
    """Names of the modules of edgekit.device that `source` imports, inside functions too."""
    names = (one or several for one, several in _IMPORT.findall(source))
    return [name.strip() for part in names for name in part.decode().split(",")]
