"""Resolves a board's address and login user: explicit settings, then the ssh config, then defaults.

The rules are OpenSSH's; directives that would run another program are rejected by name.
"""

from __future__ import annotations

import functools
import getpass
import re
from dataclasses import dataclass
from pathlib import Path

import paramiko

from edgekit.host.common.files import read_file
from edgekit.host.errors import InputError

_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_LARGEST = 1 << 20  # bytes of a file
_MOST_HOPS = 8
_INCLUDE = re.compile(r"\s*include[\s=]+(.+)", re.IGNORECASE)
_SECTION = re.compile(r"\s*(host|match)[\s=]+", re.IGNORECASE)
_JUMP = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^]]+\]|[^:@]+)(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True)
class SshTarget:
    """A board's entry in the inventory. None means: from `config`, an ssh config file (None: no
    config file is read), or OpenSSH's default.

    `host_key` is the board's only accepted key, `ssh-ed25519 AAAA...`; `proxy` is a ProxyJump;
    `known_hosts` are the files with the jump hosts' keys.
    """

    board: str
    host: str
    port: int | None = None
    user: str | None = None
    identity: Path | None = None
    host_key: str | None = None
    proxy: str | None = None
    config: Path | None = None
    known_hosts: Path | None = None


@dataclass(frozen=True)
class Hop:
    """One login on the path; the last hop is the board, which has a pinned key."""

    name: str  # as in the config and known_hosts
    host: str
    port: int
    user: str
    identities: tuple[Path, ...]
    use_agent: bool
    known_hosts: tuple[Path, ...]

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"


def user_config() -> Path:
    """Returns the path of the user's own ssh config; it need not exist."""
    return Path.home() / ".ssh" / "config"


def hops(target: SshTarget) -> tuple[Hop, ...]:
    """Returns the logins from here to the board; InputError if the config cannot be used."""
    config = _Config(target.config)
    return config.hops(target)


def literal_hosts(config: Path) -> tuple[str, ...]:
    """Returns the `Host` names in an ssh config that are not patterns, sorted."""
    if not config.exists():
        return ()
    names = _parse_config(config).get_hostnames()
    return tuple(sorted(name for name in names if not set(name) & set("*?!")))


class _Config:
    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._parsed = _parse_config(path) if path is not None and path.exists() else None

    def hops(self, target: SshTarget) -> tuple[Hop, ...]:
        found = self._lookup(target.host)
        known = (target.known_hosts,) if target.known_hosts else None
        last = self._build_hop(target.host, target.user, target.port, target.identity, known)
        proxy = target.proxy or found.get("proxyjump")
        return (*self._resolve_jumps(proxy, known, 0), last)

    def _resolve_jumps(self, proxy: str, known: tuple[Path, ...] | None, depth: int) -> list[Hop]:
        """Resolves `ProxyJump a,b`: to a, via a's own jumps, and from there to b."""
        if proxy.lower() in ("", "none"):
            return []
        if depth == _MOST_HOPS:
            raise InputError(
                f"{self._path}: expected a ProxyJump that ends, found more than {_MOST_HOPS} "
                f"jumps at '{proxy}'; look for a host that jumps through itself"
            )
        way: list[Hop] = []
        for number, text in enumerate(proxy.split(",")):
            match = _JUMP.fullmatch(text.strip())
            if match is None:
                raise InputError(f"expected ProxyJump [USER@]HOST[:PORT], found '{text:.99}'")
            name = match["host"].strip("[]")
            if number == 0:
                way += self._resolve_jumps(self._lookup(name).get("proxyjump"), known, depth + 1)
            port = int(match["port"]) if match["port"] else None
            way.append(self._build_hop(name, match["user"], port, None, known))
        return way

    def _build_hop(
        self,
        name: str,
        user: str | None,
        port: int | None,
        identity: Path | None,
        known: tuple[Path, ...] | None,
    ) -> Hop:
        found = self._lookup(name)
        if found.get("proxycommand"):
            raise InputError(
                f"{self._path}: {name}: expected ProxyJump, found ProxyCommand, which edgekit "
                "does not run; most can be written as: ProxyJump HOST"
            )
        files = found.get("userknownhostsfile", "~/.ssh/known_hosts").split()
        return Hop(
            name=found.get("hostkeyalias", name),
            host=found.get("hostname", name),
            port=port or _parse_port(found.get("port", "22"), name),
            user=user or found.get("user") or getpass.getuser(),
            identities=(identity,) if identity else _identity_files(found.identities),
            use_agent=identity is None and found.get("identitiesonly", "no").lower() != "yes",
            known_hosts=known or tuple(Path(f).expanduser() for f in files),
        )

    def _lookup(self, name: str) -> _Found:
        if self._parsed is None:
            return _Found({}, ())
        try:
            options = self._parsed.lookup(name)
        except Exception as error:  # Match exec without its library, unknown tokens, resolver
            raise InputError(
                f"{self._path}: expected to find the host '{name}', found: {error}; fix that file"
            ) from None
        identities = tuple(options.get("identityfile", ()))
        plain = {key: value for key, value in options.items() if isinstance(value, str)}
        return _Found(plain, identities)


@dataclass(frozen=True)
class _Found:
    """The settings that the config has for one host."""

    options: dict[str, str]
    identities: tuple[str, ...]

    def get(self, key: str, default: str = "") -> str:
        return self.options.get(key, default)


def _parse_config(path: Path) -> paramiko.SSHConfig:
    try:
        return _parse_text("\n".join(_expand_includes(path, path.parent, 0)))
    except (OSError, UnicodeDecodeError, paramiko.SSHException) as error:
        raise InputError(f"{path}: expected an ssh config, found: {error}; fix it") from None


@functools.lru_cache(maxsize=2)  # a fleet's boards are looked up in one file, one after the other
def _parse_text(text: str) -> paramiko.SSHConfig:
    return paramiko.SSHConfig.from_text(text)


def _expand_includes(path: Path, base: Path, depth: int) -> list[str]:
    """Returns the file's lines with Include expanded, which paramiko does not support."""
    lines: list[str] = []
    section = "Host *"
    for line in read_file(path, _LARGEST).decode().splitlines():
        if _SECTION.match(line):
            section = line
        include = _INCLUDE.fullmatch(line)
        if include is None or depth == _MOST_HOPS:
            lines.append(line)
            continue
        for pattern in include[1].split():
            wanted = Path(pattern.strip('"')).expanduser()
            found = wanted if wanted.is_absolute() else base / wanted
            for file in sorted(filter(Path.is_file, found.parent.glob(found.name))):
                lines += _expand_includes(file, base, depth + 1)
        lines.append(section)
    return lines


def _identity_files(found: tuple[str, ...]) -> tuple[Path, ...]:
    if found:
        return tuple(Path(name).expanduser() for name in found if name.lower() != "none")
    folder = Path.home() / ".ssh"
    return tuple(folder / name for name in _DEFAULT_KEYS if (folder / name).is_file())


def _parse_port(text: str, name: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise InputError(f"ssh config: {name}: expected Port 1 to 65535, found '{text:.60}'")
    return int(text)
