"""Shared by the kernel tests on instruction-counting boards: sending, running, recording."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

from edgekit.host.compiler.toolchain.zig import kernels_folder
from edgekit.host.deploy.bundle.archive import archive_bytes
from edgekit.host.deploy.transport.base import Transport

_SECONDS = 900.0
_SHOWN_ABOVE = 0.01


def run_program(
    board: Transport, program: bytes, library: bytes, cases: bytes, size: int
) -> tuple[bytes, bytes]:
    """Run `program` on the board; return its output (`size` bytes) and what it printed.

    Its arguments: the package of edgekit.device modules, the library, the cases, the output file
    and the output size.
    """
    files = {
        "program.py": program,
        "package.zip": _package(),
        "products.so": library,
        "in.bin": cases,
    }
    for name, data in files.items():
        board.put(data, f"products/{name}", deadline=_SECONDS)
    words = [f"products/{name}" for name in (*files, "out.bin")]
    done = board.run([board.python, *words, str(size)], deadline=_SECONDS)
    assert done.exit_code == 0, done.stderr.decode()
    return board.get("products/out.bin", deadline=_SECONDS), done.stdout


def compare(record_file: Path, board: str, found: dict[str, int]) -> None:
    """Report counts that differ from the record; EDGEKIT_RECORD=1 updates the record instead."""
    record = json.loads(record_file.read_text()) if record_file.exists() else {}
    if os.environ.get("EDGEKIT_RECORD") == "1":
        record[board] = found
        record_file.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    assert set(record[board]) == set(found)
    for product, count in found.items():
        change = count / record[board][product] - 1
        if abs(change) > _SHOWN_ABOVE:
            warnings.warn(
                f"{product} on {board}: {count:,} instructions ({change:+.1%})", stacklevel=2
            )
        assert abs(change) < 0.5, "the record is of another program"


def _package() -> bytes:
    """All modules of edgekit.device; the runtime sent with a release contains only a subset."""
    package = kernels_folder().parent
    runtime = package / "runtime"
    folders = [package, runtime, runtime / "agent", runtime / "arrays"]
    names = [f"edgekit/{f.relative_to(package.parent)}/" for f in folders]
    entries = [("edgekit/", b""), *((name, b"") for name in names)]
    for folder, name in zip(folders, names, strict=True):
        entries += [(f"{name}{m.name}", m.read_bytes()) for m in sorted(folder.glob("*.py"))]
    return archive_bytes(entries)
