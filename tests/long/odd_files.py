"""Puts a FIFO, /dev/zero, a folder and a huge file in the place of each file that edgekit reads.

    python -m tests.long.odd_files [--place TEXT]

Each command must end by itself with one line that names the file, within 1 GB of memory. Exit code
1 otherwise.
"""

from __future__ import annotations

import argparse
import base64
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.host.deploy.bundle import host_key
from tests.support.patience import AMPLE
from tests.support.tiny_bundles import tiny_bundle

_MEMORY_BYTES = 1 << 30
_LARGE_BYTES = 4 << 30
_START = "from edgekit.host.cli.main import run; run()"
_PROFILE = 'board = "gate"\n[boards.gate]\nprofile = "rpi4"\nhost = "127.0.0.1"\nport = 9\n'
_KEY = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes(32)).decode()
_PINNED = f'{_PROFILE}host_key = "ssh-ed25519 {_KEY}"\n'
_CSV = "name,host,port,profile\ngate,127.0.0.1,9,rpi4\n"
_MODEL = Path(__file__).parents[2] / "models" / "okay_nabu.tflite"


@dataclass(frozen=True)
class Place:
    """A file below the scratch folder, and a command that reads it. `project` is the text of
    edgekit.toml."""

    file: str
    command: str
    project: str = ""


_COMPILE = "compile net.tflite --board rpi4 -o out.ekb"
_INSTALL = "app install app --board local"
_PLACES = (
    Place("edgekit.toml", "boards"),
    Place("home/config/boards.toml", "boards"),
    Place("home/config/boards.toml", "status --board gate", _PINNED),
    Place("net.ekb", "deploy net.ekb --board local"),
    Place("net.tflite", "inspect net.tflite"),
    Place("home/gemm/cortex-a72.json", _COMPILE),
    Place("home/orders/cortex-a72.json", _COMPILE),
    Place("home/cost/cortex-a72.json", _COMPILE),
    Place("home/layouts/cortex-a72.json", _COMPILE),
    Place("home/spmv/cortex-a72.json", _COMPILE),
    Place("home/keys/signing", _INSTALL),
    Place("home/keys/signing.pub", _INSTALL),
    Place("app/app.toml", _INSTALL),
    Place("user/.ssh/config", "status --board gate", _PINNED),
    Place("known_hosts", "fleet add --csv good.csv --known-hosts known_hosts"),
    Place("boards.csv", "fleet add --csv boards.csv"),
    Place("home/profiles/tokens.json", "fleet enroll local --revoke"),
    Place("home/profiles/tokens.json", "fleet enroll local --server localhost"),
    Place("home/profiles/server.pem", "fleet serve --address 127.0.0.1"),
    Place("in.npz", "run --board local --input in.npz --output -"),
    Place("in.npy", "run --board local --input in.npy --output -"),
    Place("labels.txt", "run --board local --input good.npz --labels labels.txt --top 1"),
)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _folder(path: Path) -> None:
    path.mkdir()


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(_LARGE_BYTES)
    path.chmod(0o600)


_KINDS = {"FIFO": _fifo, "/dev/zero": _zero, "folder": _folder, "4 GB": _large}


def _run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    home = {"EDGEKIT_HOME": str(folder / "home"), "HOME": str(folder / "user")}
    limit = f"--data={_MEMORY_BYTES}"
    return subprocess.run(
        ["prlimit", limit, sys.executable, "-c", _START, *shlex.split(command)],
        cwd=folder,
        env={**os.environ, **home},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=AMPLE,
        check=False,
    )


def outcome(folder: Path, place: Place, make: Callable[[Path], None]) -> str:
    """What is wrong with how the command ends; empty if nothing is."""
    if place.project:
        (folder / "edgekit.toml").write_text(place.project)
    file = folder / place.file
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    make(file)
    try:
        done = _run(folder, place.command)
    except subprocess.TimeoutExpired:
        return f"did not end within {AMPLE:g} s"
    lines = [line for line in done.stderr.splitlines() if not line.endswith("...")]
    problems = {
        f"exit code {done.returncode}": done.returncode not in range(1, 10),
        f"{len(lines)} lines": len(lines) != 1,
        "does not name the file": file.name not in done.stderr,
        "a bug": "bug:" in done.stderr or "Traceback" in done.stderr,
    }
    wrong = ", ".join(text for text, found in problems.items() if found)
    return f"{wrong}: {done.stderr.strip()[-400:]}" if wrong else ""


def _make_good(folder: Path) -> None:
    """A folder in which all commands would work."""
    for name in ("home", "user", "app"):
        (folder / name).mkdir(parents=True)
    os.environ["EDGEKIT_HOME"] = str(folder / "home")
    (folder / "app" / "main.py").write_text("print('on')\n")
    (folder / "app" / "app.toml").write_text("")
    (folder / "good.csv").write_text(_CSV)
    np.savez(folder / "good.npz", x=np.zeros(4, np.float32))
    shutil.copy(_MODEL, folder / "net.tflite")
    tiny_bundle(folder, host_key(), 'TINY_NAME="good"').write(folder / "good.ekb")
    _run(folder, "deploy good.ekb --board local").check_returncode()


def run(folder: Path, chosen: str) -> int:
    _make_good(folder / "good")
    wrong = count = 0
    for place in (p for p in _PLACES if chosen in p.file):
        for name, make in _KINDS.items():
            count += 1
            scratch = folder / f"case-{count}"
            shutil.copytree(folder / "good", scratch, symlinks=True)
            if problem := outcome(scratch, place, make):
                wrong += 1
                print(f"{name} as {place.file}: {place.command}: {problem}", flush=True)
            shutil.rmtree(scratch)
    print(f"{count} odd files, {wrong} wrong")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--place", default="", help="only files with this in their path")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), arguments.place)


if __name__ == "__main__":
    sys.exit(main())
