"""System roots for other architectures: the `/` seen by programs under qemu-user.

Debian packages and wheels are unpacked to cache folders: nothing is installed, no foreign
architecture is added to this machine's package manager, and root privileges are not needed.

    root = system_root("aarch64", tell)
    site = wheels(root, ["ncnn"], tell)
    view = core_view(root, identity)                    # identity.py
    qemu-aarch64 -L view view/usr/bin/python3 -S ...    # with PYTHONPATH=site
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.common.files import locked
from edgekit.host.common.paths import cache_folder
from edgekit.host.debian.architecture import ARM64, ARMHF, RISCV64, Architecture
from edgekit.host.debian.packages import PackageStore, boards_cache
from edgekit.host.debian.tools import find_tools
from edgekit.host.debian.unpack import unpack
from edgekit.host.errors import InputError, UnreachableError

Tell = Callable[[str], None]

_WHAT = "estimates"
_OFF = "EDGEKIT_NO_FETCH"
_PIP_SECONDS = 1800.0
# Python, and the libraries that wheels rely on.
_PACKAGES = ("libatomic1", "libc6", "libgomp1", "libstdc++6", "python3", "zlib1g")


@dataclass(frozen=True)
class _Kind:
    """A board's architecture: the source of its packages, and the wheels that run on them.

    glibc: minor C library versions (manylinux_2_N) that wheels are built for, newest first.
    """

    debian: Architecture
    python: str
    glibc: Sequence[int]


_KINDS: Mapping[str, _Kind] = {
    "aarch64": _Kind(ARM64, "3.11", range(36, 16, -1)),
    "armv7l": _Kind(ARMHF, "3.11", range(36, 16, -1)),
    "riscv64": _Kind(RISCV64, "3.13", range(41, 34, -1)),
}


@dataclass(frozen=True)
class SystemRoot:
    """A root for `qemu-ARCH -L FOLDER`, and the Python in it."""

    arch: str
    folder: Path
    python: str

    @property
    def interpreter(self) -> Path:
        """The root's Python, a program of its architecture."""
        return self.folder / "usr" / "bin" / f"python{self.python}"


def root_architectures() -> list[str]:
    """The architectures that have roots, as named in board profiles."""
    return sorted(_KINDS)


def roots_cache() -> Path:
    """The cache folder for roots and wheels."""
    return cache_folder() / "roots"


def system_root(arch: str, tell: Tell, mirror: str | None = None) -> SystemRoot:
    """The root of an architecture, created if it is not in the cache, which `tell` reports.

    `mirror` is the address of a Debian archive, by default that of this machine's own apt. Raises
    InputError if there are no packages for `arch` or this machine lacks a program, and
    UnreachableError if the mirror does not answer.
    """
    return library_root(arch, (), tell, mirror)


def library_root(
    arch: str, packages: Sequence[str], tell: Tell, mirror: str | None = None
) -> SystemRoot:
    """`system_root` with more packages; those that end in -dev with their headers."""
    kind, wanted = _root_kind(arch), (*_PACKAGES, *packages)
    folder = roots_cache() / f"{kind.debian.label}-{_short_hash(*wanted)}"
    if not folder.is_dir():
        with locked(roots_cache() / f"{kind.debian.label}.lock"):
            if not folder.is_dir():
                make_root(kind.debian, wanted, folder, mirror, tell)
    return SystemRoot(arch, folder, kind.python)


def wheels(root: SystemRoot, requirements: Sequence[str], tell: Tell) -> Path:
    """A folder for the root's PYTHONPATH: wheels of its architecture, without dependencies.

    `requirements` are in pip's syntax (`ncnn`, `numpy<2`). Wheels stay at the version first
    fetched; `edgekit cache --clean` removes them. Raises InputError if there is no such wheel, and
    UnreachableError if the index does not answer.
    """
    kind = _root_kind(root.arch)
    name = f"{root.arch}-python{root.python}-{_short_hash(*sorted(requirements))}"
    folder = roots_cache() / name
    if not folder.is_dir():
        with locked(roots_cache() / f"{name}.lock"):
            if not folder.is_dir():
                tell(f"fetching {', '.join(requirements)} for {root.arch}, once")
                _make_wheels(kind, root, requirements, folder)
    return folder


def _root_kind(arch: str) -> _Kind:
    if arch not in _KINDS:
        known = ", ".join(root_architectures())
        raise InputError(
            f"{_WHAT}: expected an architecture with a system root ({known}), found '{arch}'; "
            "choose a board of one of them"
        )
    return _KINDS[arch]


def _short_hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _may_fetch(what: str) -> None:
    if _OFF in os.environ:
        raise InputError(
            f"{_WHAT}: expected {what} in the cache, found none, and {_OFF} is set; "
            f"unset it to fetch them"
        )


def make_root(
    debian: Architecture, packages: Sequence[str], folder: Path, mirror: str | None, tell: Tell
) -> None:
    """Unpacks packages with their dependencies into a temporary folder and renames it when
    complete. Raises the same errors as system_root."""
    _may_fetch(f"Debian packages of {debian.name}")
    find_tools(["apt-get", "apt-cache", "apt-config", "dpkg-deb", "tar"], _WHAT)
    tell(f"fetching Debian packages of {debian.name}, once")
    # Downloads are shared with the virtual board builder, which takes the same lock.
    with locked(boards_cache() / f"{debian.label}.lock"):
        store = PackageStore(boards_cache() / "packages" / debian.label, debian, mirror, _WHAT)
        store.update()
        files = store.fetch_all(packages)
        work = Path(tempfile.mkdtemp(prefix=f".{debian.label}-", dir=folder.parent))
        try:
            for name in ("bin", "sbin", "lib"):
                (work / "usr" / name).mkdir(parents=True)
                (work / name).symlink_to(f"usr/{name}")
            for file in files:
                unpack(file, work, headers=file.name.partition("_")[0].endswith("-dev"))
            work.chmod(0o755)
            work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _make_wheels(kind: _Kind, root: SystemRoot, requirements: Sequence[str], folder: Path) -> None:
    _may_fetch(f"wheels of {', '.join(requirements)} for {root.arch}")
    work = Path(tempfile.mkdtemp(prefix=".wheels-", dir=folder.parent))
    try:
        downloads, site = work / "downloads", work / "site"
        _download_wheels(kind, root, requirements, downloads)
        site.mkdir()
        for wheel in sorted(downloads.glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
        site.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download_wheels(
    kind: _Kind, root: SystemRoot, requirements: Sequence[str], folder: Path
) -> None:
    """Downloads wheels for another machine with pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "15", "--no-deps"]
    command += ["--only-binary", ":all:", "--python-version", root.python, "--dest", str(folder)]
    for minor in kind.glibc:
        command += ["--platform", f"manylinux_2_{minor}_{root.arch}"]
    what = f"{_WHAT}: expected wheels of {', '.join(requirements)} for {root.arch}"
    try:
        done = subprocess.run(
            [*command, "--platform", "any", *requirements],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PIP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnreachableError(
            f"{what}, found pip still running after {_PIP_SECONDS:.0f} s; try again"
        ) from None
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise InputError(f"{what}, found no pip in {sys.executable}; try: apt-get install pip")
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
    found = errors[-1].removeprefix("ERROR:").strip() if errors else f"exit {done.returncode}"
    if any(word in done.stderr for word in ("NewConnectionError", "Connection", "ProxyError")):
        raise UnreachableError(
            f"{what}, found no answer from the package index; check that pip can reach it, "
            "then try again"
        )
    raise InputError(f"{what}, found: {found[:200]}; check pip's index for this machine")
