"""The board's runtime as one file, made of the installed edgekit.device package."""

from __future__ import annotations

import functools
import importlib.resources

from edgekit.host.bundle.archive import archive_bytes

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

    Only the package's own modules go in. Folders need entries of their own: without them
    zipimport does not see namespace packages.
    """
    package = importlib.resources.files("edgekit.device")
    modules = sorted(
        (entry.name, entry.read_bytes())
        for entry in package.iterdir()
        if entry.is_file() and entry.name.endswith(".py")
    )
    entries = [("__main__.py", _START), ("edgekit/", b""), ("edgekit/device/", b"")]
    entries += [(f"edgekit/device/{name}", data) for name, data in modules]
    return archive_bytes(entries)
