"""SSH keys: the host keys a server may show, and our keys offered to it."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import paramiko

from edgekit.host.errors import AuthenticationError, InputError

_LARGEST_KEY = 1 << 16  # bytes of a file
_LARGEST_KNOWN_HOSTS = 64 << 20
_RSA = ("rsa-sha2-512", "rsa-sha2-256")


@dataclass(frozen=True)
class HostKey:
    """A public key of a server, as in known_hosts."""

    type: str
    blob: bytes

    @property
    def line(self) -> str:
        return f"{self.type} {base64.b64encode(self.blob).decode()}"

    @property
    def fingerprint(self) -> str:
        """The fingerprint in `ssh-keygen -l` format."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")
        return f"SHA256:{digest}"

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Signature algorithms that prove possession of this key."""
        return _RSA if self.type == "ssh-rsa" else (self.type,)

    def __str__(self) -> str:
        return f"{self.type} {self.fingerprint}"


def parse_host_key(line: str, where: str) -> HostKey:
    """Parses `TYPE BASE64 [comment]`; anything else raises InputError, naming `where` the line
    is."""
    words = line.split()
    try:
        blob = base64.b64decode(words[1], validate=True)
        length = int.from_bytes(blob[:4], "big")
        if blob[4 : 4 + length] != words[0].encode():
            raise ValueError
    except (IndexError, ValueError, binascii.Error):
        raise InputError(
            f"{where}: expected a host key such as 'ssh-ed25519 AAAA...', found '{line[:60]}'; "
            "pin the board again: edgekit board add"
        ) from None
    return HostKey(words[0], blob)


class KnownHosts:
    """The contents of known_hosts files; missing files are skipped. InputError if one is
    unreadable."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = []
        for file in filter(Path.is_file, files):
            try:
                if (size := file.stat().st_size) > _LARGEST_KNOWN_HOSTS:
                    raise ValueError(f"{size} bytes, more than {_LARGEST_KNOWN_HOSTS}")
                self._files.append(paramiko.HostKeys(str(file)))
            except (OSError, ValueError, paramiko.SSHException) as error:
                raise InputError(
                    f"{file}: expected a known_hosts file, found: {error}; fix it"
                ) from None

    def keys(self, name: str, host: str, port: int) -> tuple[HostKey, ...]:
        """Returns a host's keys, looked up by its ssh config name or by its address."""
        found: list[HostKey] = []
        for entries in self._files:
            for known in (name, host):
                label = known if port == 22 else f"[{known}]:{port}"
                keys = entries.lookup(label) or {}
                found += [HostKey(kind, key.asbytes()) for kind, key in keys.items()]
        return tuple(dict.fromkeys(found))


def fingerprint(line: str) -> str:
    """Returns the SHA256 fingerprint of a public key line."""
    return parse_host_key(line, "host key").fingerprint


@dataclass(frozen=True)
class KeyCandidate:
    """One of our keys, and its name for messages."""

    label: str
    key: paramiko.PKey


@dataclass(frozen=True)
class Candidates:
    """Keys to offer, and notes about keys that cannot be offered."""

    keys: tuple[KeyCandidate, ...]
    notes: tuple[str, ...]


def candidates(identities: Sequence[Path], use_agent: bool) -> Candidates:
    """Returns identity files first, each through the agent if it has a passphrase; then agent
    keys."""
    held = list(_agent_keys())
    keys: list[KeyCandidate] = []
    notes: list[str] = []
    for path in identities:
        public = _public_blob(path)
        for candidate in held:
            if public is not None and candidate.key.asbytes() == public:
                keys.append(candidate)
                break
        else:
            try:
                keys.append(KeyCandidate(str(path), _load_key(path)))
            except AuthenticationError as error:
                notes.append(str(error))
    if use_agent:
        keys += [candidate for candidate in held if candidate not in keys]
    return Candidates(tuple(keys), tuple(notes))


def _agent_keys() -> Iterator[KeyCandidate]:
    try:
        for key in paramiko.Agent().get_keys():
            yield KeyCandidate(f"agent key {HostKey('', key.asbytes()).fingerprint}", key)
    except (paramiko.SSHException, OSError):
        return  # an unresponsive agent counts as none


def _public_blob(path: Path) -> bytes | None:
    """Reads IDENTITY.pub, which OpenSSH too uses to find a key in the agent."""
    file = path.with_name(path.name + ".pub")
    try:
        _check_file(file)
        return base64.b64decode(file.read_text(encoding="utf-8").split()[1])
    except (AuthenticationError, OSError, ValueError, IndexError):
        return None


def _check_file(path: Path) -> None:
    """Raises AuthenticationError if `path` is not a safe key file: writable by others, or not a
    regular file, which could block the read. Raises OSError if it does not exist."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_KEY:
        raise AuthenticationError(f"{path}: not a private key")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise AuthenticationError(f"{path}: others may write it; run: chmod go-w {path}")


def _load_key(path: Path) -> paramiko.PKey:
    try:
        _check_file(path)
        with contextlib.suppress(FileNotFoundError):
            _check_file(path.with_name(path.name + "-cert.pub"))  # paramiko reads this file as well
        return paramiko.PKey.from_path(path)
    except AuthenticationError:
        raise
    except FileNotFoundError:
        raise AuthenticationError(f"{path}: no such file") from None
    except OSError as error:
        raise AuthenticationError(f"{path}: {error.strerror}") from None
    except (TypeError, paramiko.PasswordRequiredException):
        raise AuthenticationError(f"{path}: has a passphrase; run: ssh-add {path}") from None
    except Exception:  # cryptography, paramiko and binascii each raise their own errors here
        raise AuthenticationError(f"{path}: not a private key") from None
