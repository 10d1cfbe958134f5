"""Reads hostile bundles; any outcome but a bundle or a one-line `InputError` is a bug.

    python -m tests.long.fuzz_bundle [--minutes 10] [--seed 1]

Each round of cases runs in a child process limited to 64 MiB of memory above its baseline, in a
separate folder where nothing but the bundle may appear. Bundles are corrupted byte by byte, or
built to be hostile: paths that escape the folder, links, devices, bombs, duplicate names,
overlapping entries, manifests with false values in any field. Prints the seed of each failure.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import resource
import stat
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.manifest import content_id
from edgekit.host.deploy.bundle import Bundle, signing_key
from edgekit.host.errors import InputError
from tests.support.tiny_bundles import tiny_bundle

_ROOT = Path(__file__).parents[2]
_MEMORY_BYTES = 64 << 20
_CASES_PER_CHILD = 2000
_CPU_SECONDS = 5.0

Entry = tuple[zipfile.ZipInfo, bytes]
NAMES = (
    "../out",
    "a/../../out",
    "/etc/passwd",
    "/tmp/out",
    "..",
    ".",
    "",
    "\\out",
    "C:\\out",
    "golden/",
    "golden",
    "model.so/",
    "model.so/x",
    "./model.so",
    "golden//in0.bin",
    "manifest.json\0.so",
    "naïve",
    "a" * 300,
    "a/b/c/d/e/f",
    "\n",
)
EDGES = (0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF)
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 2**200, 1.5, 1e308, "", "x", "../x", "/x", "a" * 70,
    [], {}, [[]], [None], {"a": 1}, "\0", "\ud7ff", ["../../x"],
)  # fmt: skip


def damaged(whole: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut, duplicated or moved; often in the central directory, which zipfile
    trusts."""
    data = bytearray(whole)
    for _ in range(rng.randint(1, 6)):
        if not data:
            break
        low = max(len(data) - 900, 0) if rng.random() < 0.6 else 0
        at = rng.randrange(low, len(data))
        kind = rng.randrange(7)
        if kind <= 2:
            data[at] = rng.randrange(256)
        elif kind == 3 and at + 4 <= len(data):
            struct.pack_into("<L", data, at, rng.choice((*EDGES, len(data), rng.getrandbits(32))))
        elif kind == 4:
            del data[at : at + rng.randint(1, 64)]
        elif kind == 5:
            data[at:at] = data[max(at - 64, 0) : at]
        else:
            del data[at : len(data) if rng.random() < 0.2 else at + 1]
    return bytes(data)


def hostile(whole: bytes, rng: random.Random) -> bytes:
    """A well-formed zip with malicious contents."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        entries = [(info, archive.read(info)) for info in archive.infolist()]
    for _ in range(rng.randint(1, 2)):
        rng.choice(ATTACKS)(entries, rng)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for info, data in entries:
            archive.writestr(info, data, compress_type=info.compress_type)
        if rng.random() < 0.05:
            archive.comment = rng.randbytes(rng.choice((1, 65535)))
    return buffer.getvalue()


def _stranger(entries: list[Entry], rng: random.Random) -> None:
    mode = rng.choice((stat.S_IFREG, stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO))
    info = zipfile.ZipInfo(rng.choice(NAMES) or "x")
    info.create_system, info.external_attr = 3, (mode | 0o777) << 16
    entries.insert(rng.randrange(len(entries) + 1), (info, rng.choice((b"", b"/etc/passwd"))))


def _renamed(entries: list[Entry], rng: random.Random) -> None:
    i = rng.randrange(len(entries))
    info = zipfile.ZipInfo(rng.choice(NAMES) or "x")
    info.external_attr = (rng.choice((stat.S_IFLNK, stat.S_IFREG)) | 0o777) << 16
    entries[i] = (info, entries[i][1])


def _twice(entries: list[Entry], rng: random.Random) -> None:
    entries.append(rng.choice(entries))


def _bomb(entries: list[Entry], rng: random.Random) -> None:
    info = zipfile.ZipInfo(rng.choice(("manifest.json", "model.so", "x")))
    info.compress_type = rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    entries.append((info, bytes(rng.choice((1 << 16, 1 << 22)))))


def _many(entries: list[Entry], rng: random.Random) -> None:
    entries += [(zipfile.ZipInfo(f"f{i}"), b"") for i in range(rng.choice((10, 3000, 6000)))]


def _gone(entries: list[Entry], rng: random.Random) -> None:
    del entries[rng.randrange(len(entries))]


def _lying_manifest(entries: list[Entry], rng: random.Random) -> None:
    """Replace one value anywhere in the manifest, and recompute its id."""
    for i, (info, data) in enumerate(entries):
        if info.filename == "manifest.json":
            with contextlib.suppress(ValueError, RecursionError):  # no longer JSON
                entries[i] = (info, _lie(json.loads(data), rng))


def _lie(document: Any, rng: random.Random) -> bytes:
    _replace_one(document, rng)
    if isinstance(document, dict) and rng.random() < 0.9:
        document["id"] = content_id(document)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    if rng.random() < 0.1:
        text = rng.choice(("[" * 100_000, "1" * 5000, '{"a":1,"a":2}', "NaN", text + " x"))
    return text.encode("utf-8", "surrogatepass")


def _replace_one(document: Any, rng: random.Random) -> None:
    """Walk down to a random value; replace or remove it."""
    while isinstance(document, (dict, list)) and document:
        key = rng.choice(list(document) if isinstance(document, dict) else range(len(document)))
        if isinstance(document[key], (dict, list)) and rng.random() < 0.8:
            document = document[key]
        elif rng.random() < 0.1:
            del document[key]
            return
        else:
            document[key] = rng.choice(VALUES)
            return


ATTACKS: tuple[Callable[[list[Entry], random.Random], None], ...] = (
    _stranger,
    _renamed,
    _twice,
    _bomb,
    _many,
    _gone,
    _lying_manifest,
    _lying_manifest,
    _lying_manifest,
)


def outcome(path: Path) -> str:
    """ "bundle" or "refused"; anything else is raised."""
    try:
        bundle = Bundle.read(path)
        for name in bundle.files:
            bundle.files[name]
    except InputError as error:
        message = str(error)
        assert message, "expected a message, found none"
        assert "\n" not in message, f"expected one line, found {message!r}"
        return "refused"
    return "bundle"


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Limit this process to 64 MiB of additional memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def child(whole: bytes, folder: Path, first: int) -> int:
    """Run a round of cases under a memory limit; print the result as one line of JSON."""
    os.chdir(folder)
    path = folder / "hostile.ekb"
    outcome_of_nothing = outcome(_written(path, b""))  # allocate imports and buffers first
    assert outcome_of_nothing == "refused"
    seen: Counter[str] = Counter()
    failures = []
    for seed in range(first, first + _CASES_PER_CHILD):
        rng = random.Random(seed)
        make = damaged if rng.random() < 0.6 else hostile
        _written(path, make(whole, rng))
        begin = time.process_time()
        try:
            with little_memory():
                seen[outcome(path)] += 1
        except BaseException as error:
            failures.append(f"seed {seed} ({make.__name__}): {type(error).__name__}: {error}")
        seconds = time.process_time() - begin
        if seconds > _CPU_SECONDS:
            failures.append(f"seed {seed}: took {seconds:.1f} s of CPU time")
        if [p.name for p in folder.iterdir()] != ["hostile.ekb"]:
            failures.append(f"seed {seed}: left {sorted(p.name for p in folder.iterdir())}")
    print(json.dumps({"seen": seen, "failures": failures}))
    return 0


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        whole = (arguments.child / "whole.ekb").read_bytes()
        return child(whole, arguments.child / "work", arguments.seed)
    end = time.monotonic() + arguments.minutes * 60
    seed, seen, failures = arguments.seed, Counter[str](), []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "work").mkdir()
        tiny_bundle(folder, signing_key(folder / "keys")).write(folder / "whole.ekb")
        while time.monotonic() < end:
            command = [sys.executable, "-m", "tests.long.fuzz_bundle", "--child", text]
            done = subprocess.run(
                [*command, "--seed", str(seed)], cwd=_ROOT, capture_output=True, check=False
            )
            if done.returncode != 0:
                failures.append(f"round from seed {seed}: {done.stderr.decode()[-500:]}")
                break  # later rounds would likely fail the same way
            found = json.loads(done.stdout)
            seen.update(found["seen"])
            failures += found["failures"]
            seed += _CASES_PER_CHILD
    print(f"{sum(seen.values())} bundles: {dict(seen)}; {len(failures)} failures")
    for line in failures[:50]:
        print(line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
