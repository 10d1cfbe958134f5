"""The C cross compiler (ziglang) and its object cache.

Objects are keyed by a hash of everything that affects them: the source and its headers, the flags,
and the compiler version. The cache is shared by all models. Conditional includes count as taken,
which may rebuild too much but never too little.

Parsing the intrinsics headers takes longer than compiling most kernels, so they are precompiled
once per target. This does not change any object.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.runtime import kernel_facts
from edgekit.host.common.checked_files import WORK, in_use, is_intact, put_checked
from edgekit.host.common.files import atomic_write, locked
from edgekit.host.compiler.toolchain.process import run_watched
from edgekit.host.errors import EdgekitError, InputError
from edgekit.kb.targets.board import BoardProfile

_FACTS = tuple(f"-DEK_{name}={n}" for name, n in vars(kernel_facts).items() if name.isupper())
_FLAGS = ("-std=gnu11", "-O3", "-g0", "-fPIC", "-fno-sanitize=undefined", "-Wall", "-Wextra")
# Without timestamps, precompiled headers remain valid after the compiler is reinstalled.
_PRECOMPILE = ("-Xclang", "-fno-pch-timestamp", "-x", "c-header")
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # errors that a fresh compiler cache does not fix
_NO_ROOM = ("No space left", "NoSpaceLeft", "Disk quota exceeded", "DiskQuota")
_TIMEOUT = 1800  # seconds: a first link builds the C library, perhaps on a busy machine
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_SYSTEM = re.compile(rb"^#include <([^>\n]+)>", re.MULTILINE)


class BuildError(EdgekitError):
    """The C compiler rejected our code: a bug in edgekit, or a broken installation."""


@functools.cache
def kernels_folder() -> Path:
    """device/kernels of the installed package."""
    import edgekit.device

    return Path(next(iter(edgekit.device.__path__))).resolve() / "kernels"


@functools.cache
def zig_compiler() -> tuple[str, str]:
    """Returns (path of the compiler, its version)."""
    import importlib.metadata

    import ziglang

    path = Path(ziglang.__file__).parent / "zig"
    return str(path), importlib.metadata.version("ziglang")


_LOG = logging.getLogger(__name__)

Run = Callable[[Sequence[str], Mapping[str, str], float], subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class TranslationUnit:
    """One C file to compile, as text or as a path in device/kernels, with macros.

    `plain` builds for the baseline architecture instead of the board's core; `extras` are features
    of that core which only some code may use.
    """

    name: str
    source: str | Path
    macros: tuple[tuple[str, str], ...] = ()
    plain: bool = False
    extras: tuple[str, ...] = ()

    def text(self) -> bytes:
        return self.source.encode() if isinstance(self.source, str) else self.source.read_bytes()

    def defines(self) -> tuple[str, ...]:
        """The compiler options for its macros, and the facts defined for every C file."""
        return (*_FACTS, *(f"-D{name}={value}" for name, value in self.macros))


class Toolchain:
    """Compiles and links for one board; `cache` is a directory that may be shared.

    `run` runs a command with an environment and a limit in seconds; `compiler` is the path of the
    compiler and its version, by default ziglang's.
    """

    def __init__(
        self,
        board: BoardProfile,
        cache: Path,
        extra_flags: Sequence[str] = (),
        run: Run = run_watched,
        compiler: tuple[str, str] | None = None,
    ) -> None:
        self._board = board
        self._cache = cache
        self._extra = tuple(extra_flags)
        self._run = run
        self._zig, self._version = compiler or zig_compiler()
        self._precompiling = threading.Lock()
        self._seen: set[Path] = set()  # precompiled headers verified by this process

    def build(self, units: Sequence[TranslationUnit], soname: str = "model.so") -> bytes:
        """Links all units into one shared library; compiles uncached ones in parallel."""
        with in_use(self._cache):
            return self._build_library(units, soname)

    def _build_library(self, units: Sequence[TranslationUnit], soname: str) -> bytes:
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as threads:
            objects = list(threads.map(self._build_object, units))
        key = hashlib.sha256(repr((self._target_flags(), self._extra, self._version)).encode())
        for path in objects:
            key.update(path.name.encode())
        library = self._cache / f"{key.hexdigest()}.so"
        if not is_intact(library):
            self._link(objects, library, soname)
        return library.read_bytes()

    def _target_flags(self, extras: Sequence[str] = ()) -> tuple[str, ...]:
        cpu = "+".join((self._board.cpu, *extras))
        return ("-target", self._board.target, f"-mcpu={cpu}")

    def _compile_flags(self, unit: TranslationUnit) -> tuple[str, ...]:
        target = ("-target", self._board.target) if unit.plain else self._target_flags(unit.extras)
        in_order = ("-DEK_IN_ORDER=1",) if self._board.in_order else ()
        return (*target, *in_order, *_FLAGS, *self._extra)

    def _precompiled_flags(self, unit: TranslationUnit) -> tuple[str, ...]:
        """The options that use the precompiled system headers of `unit`."""
        names, flags = system_headers(unit.macros, kernels_folder()), self._compile_flags(unit)
        if not names:
            return ()
        # A precompiled header contains the paths of its sources, so it is valid only at its own
        # location.
        cache = self._cache.resolve()
        compiler = (self._zig, self._version)
        key = hashlib.sha256(repr((flags, names, compiler, str(cache))).encode()).hexdigest()
        source, target = (cache / f"{key}{suffix}" for suffix in (".h", ".pch"))
        with self._precompiling:
            if target not in self._seen and not is_intact(target):
                atomic_write(source, "".join(f"#include <{name}>\n" for name in names).encode())
                with tempfile.TemporaryDirectory(prefix=WORK, dir=cache) as work:
                    made = Path(work) / "out.pch"
                    arguments = [*flags, *_PRECOMPILE, str(source), "-o", str(made)]
                    self._zig_cc(arguments, "system headers")
                    put_checked(made, target)
            self._seen.add(target)
        return ("-Xclang", "-include-pch", "-Xclang", str(target))

    def _build_object(self, unit: TranslationUnit) -> Path:
        flags = (*self._compile_flags(unit), *unit.defines())
        text, kernels = unit.text(), kernels_folder()
        folder = kernels if isinstance(unit.source, str) else unit.source.parent
        digest = hashlib.sha256(repr((flags, self._version)).encode())
        digest.update(headers_hash(text, folder, unit.macros, kernels))
        digest.update(text)
        target = self._cache / f"{digest.hexdigest()}.o"
        if is_intact(target):
            return target
        with locked(self._cache / "locks" / target.name[:2]):
            if not is_intact(target):
                self._compile(unit, flags, target)
        return target

    def _compile(self, unit: TranslationUnit, flags: Sequence[str], target: Path) -> None:
        include = f"-I{kernels_folder()}"
        with tempfile.TemporaryDirectory(prefix=WORK, dir=self._cache) as work:
            if isinstance(unit.source, str):
                source = Path(work) / f"{unit.name}.c"
                source.write_text(unit.source, encoding="ascii")
            else:
                source = unit.source
            made = Path(work) / "out.o"
            precompiled = self._precompiled_flags(unit)
            self._zig_cc(
                [*flags, *precompiled, include, "-c", str(source), "-o", str(made)], unit.name
            )
            put_checked(made, target)

    def _link(self, objects: Sequence[Path], library: Path, soname: str) -> None:
        # The compiler's own library is then built once per architecture instead of once per core.
        flags = ["-target", self._board.target, *self._extra, "-O3", "-s", "-shared", "-fPIC"]
        with tempfile.TemporaryDirectory(prefix=WORK, dir=self._cache) as work:
            made = Path(work) / soname
            names = [str(p) for p in objects]
            libraries = [*names, "-lm", "-lpthread"]
            arguments = [*flags, f"-Wl,-soname,{soname}", *libraries, "-o", str(made)]
            if not self._links_alone(arguments):
                self._zig_cc(arguments, soname, links=True)
            put_checked(made, library)

    def _links_alone(self, arguments: Sequence[str]) -> bool:
        """Links without the compiler's own library, which takes longer to build than most models;
        False if the objects call it, or if linking fails for another reason."""
        try:
            done = self._run_zig(["-rtlib=none", "-Wl,-z,defs", *arguments], self._cache)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def _zig_cc(self, arguments: Sequence[str], what: str, links: bool = False) -> None:
        _LOG.debug("compiling %s for %s", what, self._board.name)
        try:
            done = self._run_zig(arguments, self._cache)
            if done.returncode and links:
                done = self._with_new_libraries(arguments) or done
        except (OSError, subprocess.TimeoutExpired) as error:
            if getattr(error, "errno", None) in _DISK:
                raise
            raise BuildError(
                f"compiling {what}: expected the ziglang compiler to run, found {error}; "
                f"try: {sys.executable} -m pip install --force-reinstall ziglang"
            ) from error
        if done.returncode:
            if any(words in done.stderr for words in _NO_ROOM):
                raise InputError(
                    f"{self._cache}: expected free disk space for compiled code, found none; free "
                    "some space, or set EDGEKIT_HOME to a folder on another disk"
                )
            lines = [line for line in done.stderr.splitlines() if "error" in line]
            found = lines[0] if lines else done.stderr.strip()[-300:]
            raise BuildError(
                f"compiling {what} for {self._board.name}: expected success, found: {found}"
            )

    def _run_zig(self, arguments: Sequence[str], caches: Path) -> subprocess.CompletedProcess[str]:
        env = dict(os.environ)
        env["ZIG_GLOBAL_CACHE_DIR"] = str(caches / "zig")
        env["ZIG_LOCAL_CACHE_DIR"] = str(caches / "zig-local")
        return self._run([self._zig, "cc", *arguments], env, _TIMEOUT)

    def _with_new_libraries(
        self, arguments: Sequence[str]
    ) -> subprocess.CompletedProcess[str] | None:
        """Retries with a freshly built C library, since zig does not detect a damaged one.

        Returns None if that fails too; otherwise the fresh library replaces the old one.
        """
        with tempfile.TemporaryDirectory(prefix=WORK, dir=self._cache) as work:
            done = self._run_zig(arguments, Path(work))
            if done.returncode:
                return None
            for name in ("zig", "zig-local"):
                old, new = self._cache / name, Path(work) / name
                if old.exists():
                    old.replace(Path(work) / f"old-{name}")
                if new.exists():
                    new.replace(old)
        return done


def headers_hash(
    text: bytes, folder: Path, macros: Sequence[tuple[str, str]], kernels: Path
) -> bytes:
    """Hashes all headers that `text`, a file in `folder`, includes directly or indirectly.

    Headers are searched in the directory of the including file, then under `kernels`. A macro whose
    value is a quoted name counts as included.
    """
    found: dict[Path, bytes] = {}
    _collect_headers([*_INCLUDE.findall(text), *_quoted_headers(macros)], folder, kernels, found)
    digest = hashlib.sha256()
    for path in sorted(found):
        digest.update(hashlib.sha256(found[path]).digest())
    return digest.digest()


def system_headers(macros: Sequence[tuple[str, str]], kernels: Path) -> tuple[str, ...]:
    """The system headers included directly or indirectly by headers that macros name."""
    found: dict[Path, bytes] = {}
    _collect_headers(_quoted_headers(macros), kernels, kernels, found)
    names = [name.decode() for text in found.values() for name in _SYSTEM.findall(text)]
    return tuple(dict.fromkeys(names))


def _quoted_headers(macros: Sequence[tuple[str, str]]) -> list[bytes]:
    return [value.strip('"').encode() for _, value in macros if value.startswith('"')]


def _collect_headers(
    names: Iterable[bytes], folder: Path, kernels: Path, found: dict[Path, bytes]
) -> None:
    for name in names:
        for base in (folder, kernels):
            path = (base / name.decode()).resolve()
            if not path.is_file():
                continue
            if path not in found:
                found[path] = path.read_bytes()
                _collect_headers(_include_names(found[path]), path.parent, kernels, found)
            break


@functools.lru_cache(maxsize=512)
def _include_names(text: bytes) -> tuple[bytes, ...]:
    return tuple(_INCLUDE.findall(text))
