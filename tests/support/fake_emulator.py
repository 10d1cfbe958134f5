"""An emulator that executes nothing: it writes the output the plugin would have written."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgekit.host.simulator.programs import Programs

_MACHINES = {"aarch64": 183, "armv7l": 40, "riscv64": 243, "x86_64": 62}
_SCRIPT = """#!/bin/sh
case "$1" in
    -h) echo "{usage}"; exit 0;;
    --version) echo "qemu-aarch64 version {version} (Debian)"; exit 0;;
esac
for word in "$@"; do
    case "$word" in
        *,out=*) out=${{word#*,out=}}; out=${{out%%,*}};;
    esac
    [ "$before" = -D ] && cat > "$word" <<'EOF'
--- SIGILL {{si_signo=SIGILL, si_code=2, si_addr=0x00400120}} ---
0x00400120:  4e80fc00  sdot v0.4s, v0.16b, v0.16b
EOF
    before=$word
done
{does}
cat > "$out" <<'EOF'
{answer}
EOF
"""


def cost(cycles: int, instructions: int = 100, **bound: int) -> dict[str, Any]:
    """A program region's cost in the plugin's format."""
    return {"cycles": cycles, "instructions": instructions, "bound": bound or {"issue": cycles}}


def answer(laps: Sequence[int] = (), cycles: int = 1800, regions: int = 1) -> dict[str, Any]:
    """Plugin output for a run with one region, whose laps took the given cycles."""
    region = {
        **cost(cycles),
        "laps": [cost(each) for each in laps],
        "stamps": list(range(len(laps))),
        "threads": [cost(cycles)],
    }
    return {
        "schema": "edgekit.boardtime.run/1",
        "instructions": 100 * regions,
        "regions_seen": regions,
        "unknown": {"count": 0},
        "cores": [{"name": "a72", "unknown": {"count": 0}, "regions": [region] * regions}],
    }


def write_emulator(
    folder: Path,
    document: dict[str, Any] | None = None,
    does: str = "",
    usage: str = "-plugin QEMU_PLUGIN",
    version: str = "7.2.22",
    name: str = "qemu-aarch64",
) -> Path:
    """Install it in a folder for PATH; `does` are shell lines to run before it answers."""
    text = json.dumps(document or answer())
    path = folder / name
    path.write_text(_SCRIPT.format(usage=usage, version=version, does=does, answer=text))
    path.chmod(0o755)
    return path


def fake_programs(folder: Path) -> Programs:
    """Programs for this emulator, none of which it executes."""
    return Programs(b"kernels", write_program(folder / "runner"), Path("plugin.so"))


def write_program(path: Path, arch: str = "aarch64", loader: str = "") -> Path:
    """Write an ELF header, the only part that is inspected."""
    wide = arch != "armv7l"
    head = bytearray(64 if wide else 52)
    head[:7] = b"\x7fELF" + bytes([2 if wide else 1, 1, 1])
    struct.pack_into("<HHI", head, 16, 2, _MACHINES[arch], 1)
    struct.pack_into("<Q" if wide else "<I", head, 32 if wide else 28, len(head))
    struct.pack_into("<HH", head, 54 if wide else 42, 56 if wide else 32, 1 if loader else 0)
    part = bytearray(56 if wide else 32)
    struct.pack_into("<I", part, 0, 3)
    where = len(head) + len(part)
    struct.pack_into("<Q" if wide else "<I", part, 8 if wide else 4, where)
    path.write_bytes(bytes(head + part) + loader.encode() + b"\0" + bytes(64))
    path.chmod(0o755)
    return path
