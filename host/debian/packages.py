"""Debian packages for a board, resolved, downloaded and verified by apt in a private state.

Of the machine's own apt configuration, only the mirror's address and the proxy are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.common.paths import cache_folder
from edgekit.host.debian.architecture import Architecture
from edgekit.host.debian.tools import BoardToolError, find_tools, run_tool
from edgekit.host.errors import InputError, UnreachableError

_DOWNLOAD_SECONDS = 900
_QUERY_SECONDS = 120
_OTHER_NAMES = ("stable", "oldstable", "oldoldstable")  # aliases of a suite, by age
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

WANTED = (
    "base-files",
    "base-passwd",
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "gzip",
    "libatomic1",
    "libc-bin",
    "libgomp1",
    "libstdc++6",
    "mawk",
    "netbase",
    "openssh-client",
    "openssh-server",
    "openssh-sftp-server",
    "procps",
    "python3",
    "python3-numpy",
    "sed",
    "tar",
)
# Needed only by maintainer scripts and for tasks never done on a board without an administrator.
_UNUSED = re.compile(
    r"adduser|debconf|debianutils|dpkg|init-system-helpers|libapparmor1|libaudit-common|libdb5|"
    r"libdebconfclient0|libfile-find|libgdbm|libnumber-compare|libpam-modules|libpam-runtime|"
    r"libperl|libsemanage|libsepol|libtext-glob|lsb-base|openssl|passwd|perl|"
    r"python3-numpy-dev|python3-pkg-resources|readline-common|runit-helper|sensible-utils|"
    r"sysvinit-utils|tzdata|ucf|usrmerge"
)


def boards_cache() -> Path:
    """The folder for images and downloaded packages."""
    return cache_folder() / "boards"


@dataclass(frozen=True)
class Package:
    """A package in the version currently on the mirror."""

    name: str
    version: str


@dataclass(frozen=True)
class PackageFiles:
    """Downloaded packages of the root file system, and the kernel package."""

    root: tuple[Path, ...]
    kernel: Path


def apt_configuration(folder: Path, architecture: str, machine: str) -> str:
    """The apt.conf for a private state in `folder`; `machine` is `apt-config dump Acquire`."""
    network = [
        line
        for line in machine.splitlines()
        if re.match(r"Acquire::(http|https|ftp|Retries)", line)
    ]
    return "\n".join(
        [
            f'Dir::State "{folder}/state";',
            f'Dir::State::status "{folder}/status";',
            f'Dir::Cache "{folder}/cache";',
            # apt's binary caches are larger than the packages, and quickly rebuilt in memory.
            'Dir::Cache::pkgcache "";',
            'Dir::Cache::srcpkgcache "";',
            'Acquire::GzipIndexes "true";',
            f'Dir::Etc "{folder}/etc";',
            f'Dir::Log "{folder}/log";',
            f'APT::Architecture "{architecture}";',
            f'APT::Architectures {{ "{architecture}"; }};',
            'APT::Sandbox::User "";',
            'Acquire::Languages "none";',
            *network,
            "",
        ]
    )


def source_line(architecture: Architecture, mirror: str, keyring: Path, suite: str) -> str:
    """The sources.list for a board."""
    options = f"arch={architecture.name} signed-by={keyring}"
    return f"deb [{options}] {mirror} {suite} main\n"


def resolved(simulation: str) -> list[Package]:
    """The packages that `apt-get install --simulate` lists, except those useless on a board."""
    found = re.findall(r"^Inst (\S+) \((\S+)", simulation, re.MULTILINE)
    return [Package(*pair) for pair in found if not _UNUSED.match(pair[0])]


def machine_mirror(what: str = "virtual boards") -> str:
    """The mirror from which this machine's own apt fetches Debian's main archive."""
    tools = find_tools(["apt-get"], what)
    listed = run_tool(
        [tools["apt-get"], "indextargets", "--format", "$(SITE) $(LABEL)", "Created-By: Packages"],
        what="asking apt for its mirror",
        seconds=_QUERY_SECONDS,
    )
    for line in listed.splitlines():
        site, _, label = line.partition(" ")
        if label == "Debian":
            return site
    raise InputError(
        f"{what}: expected a Debian mirror among this machine's apt sources, found none; "
        "name one with --mirror URL"
    )


class PackageStore:
    """apt's private state for one architecture in `folder`, reused for the next image.

    `what` names the purpose of the packages and begins the error messages.
    """

    def __init__(
        self,
        folder: Path,
        architecture: Architecture,
        mirror: str | None,
        what: str = "virtual boards",
    ) -> None:
        self._folder = folder
        self._archives = folder / "cache" / "archives"
        self._architecture = architecture
        self._tools = find_tools(["apt-get", "apt-cache", "apt-config"], what)
        self._mirror = mirror or machine_mirror(what)
        if not _KEYRING.is_file():
            raise InputError(
                f"{what}: expected Debian's keys in {_KEYRING}, found no such file; "
                "try: apt-get install debian-archive-keyring"
            )

    def update(self) -> None:
        """Writes the configuration and fetches the mirror's index.

        While a mirror (or a cache in front of it) syncs a point release, it may serve a new index
        with old package lists. The suite's other name may still be consistent.
        """
        for name in ("state/lists/partial", "cache/archives/partial", "etc", "log"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        dump = [self._tools["apt-config"], "dump", "Acquire"]
        machine = run_tool(dump, what="asking apt for its settings", seconds=_QUERY_SECONDS)
        text = apt_configuration(self._folder, self._architecture.name, machine)
        (self._folder / "apt.conf").write_text(text, encoding="utf-8")
        (self._folder / "status").touch()
        try:
            self._update_from(self._architecture.suite)
        except UnreachableError:
            came = any((self._folder / "state" / "lists" / "partial").glob("*Release"))
            if not (came and any(self._is_whole_under(name) for name in _OTHER_NAMES)):
                raise

    def _update_from(self, suite: str) -> None:
        line = source_line(self._architecture, self._mirror, _KEYRING, suite)
        (self._folder / "etc" / "sources.list").write_text(line, encoding="utf-8")
        self._download("update", "-o", "APT::Update::Error-Mode=any")

    def _is_whole_under(self, name: str) -> bool:
        """Whether the index could be fetched under that name and belongs to the suite."""
        try:
            self._update_from(name)
        except UnreachableError:
            return False
        indices = (self._folder / "state" / "lists").glob(f"*_dists_{name}_*Release")
        codename = f"\nCodename: {self._architecture.suite}\n"
        return any(codename in index.read_text(encoding="utf-8") for index in indices)

    def fetch(self) -> PackageFiles:
        """Downloads the packages of an image that are not yet present."""
        root = self._resolve(WANTED)
        files = self._fetch_archives([*root, self._kernel_package()])
        return PackageFiles(files[:-1], files[-1])

    def fetch_all(self, names: Sequence[str]) -> tuple[Path, ...]:
        """Downloads the named packages and their dependencies if not yet present."""
        return self._fetch_archives(self._resolve(names))

    def _resolve(self, names: Sequence[str]) -> list[Package]:
        install = ("install", "--simulate", "--no-install-recommends", "-qq")
        return resolved(self._run_apt("apt-get", *install, *names))

    def _fetch_archives(self, packages: Sequence[Package]) -> tuple[Path, ...]:
        """Files of packages; apt verifies each download against the signed index."""
        if missing := [p for p in packages if not self._archive_path(p).is_file()]:
            wanted = [f"{p.name}={p.version}" for p in missing]
            self._download("download", *wanted, folder=self._archives)
        return tuple(self._archive_path(package) for package in packages)

    def _kernel_package(self) -> Package:
        """The newest kernel, a dependency of its metapackage."""
        text = self._run_apt(
            "apt-cache", "show", "--no-all-versions", self._architecture.kernel_package
        )
        found = re.search(r"^Depends: (linux-image-\S+) \(= (\S+)\)", text, re.MULTILINE)
        if found is None:
            raise BoardToolError(
                f"{self._architecture.kernel_package}: expected a package that depends on a "
                "kernel, found none; try another --mirror"
            )
        return Package(found.group(1), found.group(2))

    def _archive_path(self, package: Package) -> Path:
        # apt's own naming scheme; some file systems do not allow colons.
        version = package.version.replace(":", "%3a")
        stem = self._archives / f"{package.name}_{version}"
        paths = [stem.with_name(f"{stem.name}_{a}.deb") for a in (self._architecture.name, "all")]
        return next((path for path in paths if path.is_file()), paths[0])

    def _download(self, *arguments: str, folder: Path | None = None) -> None:
        """Fetches from the mirror. Raises UnreachableError."""
        try:
            self._run_apt("apt-get", "-qq", *arguments, folder=folder)
        except BoardToolError as error:
            found = error.found or f"no end of it within {_DOWNLOAD_SECONDS:.0f} s"
            raise UnreachableError(
                f"packages of {self._architecture.label}: expected to fetch them from "
                f"{self._mirror}, found: {found}; see that this machine reaches that mirror, or "
                "name another: --mirror URL"
            ) from None

    def _run_apt(self, program: str, *arguments: str, folder: Path | None = None) -> str:
        return run_tool(
            [self._tools[program], *arguments],
            what=f"packages of {self._architecture.label}",
            seconds=_DOWNLOAD_SECONDS,
            environment={"APT_CONFIG": str(self._folder / "apt.conf")},
            folder=folder,
        )
