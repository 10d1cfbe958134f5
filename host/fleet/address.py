"""Parses board addresses as users write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgekit.host.errors import InputError

_ADDRESS = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[^\]\s]+\]|[^@:\s]+)(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True)
class Address:
    """`user@host:port`; omitted parts are None."""

    user: str | None
    host: str
    port: int | None


def parse_address(text: str, where: str = "--host") -> Address:
    """Parses [USER@]ADDRESS[:PORT]; an IPv6 address is written in brackets. Raises InputError;
    `where` names the option in the message."""
    found = _ADDRESS.fullmatch(text)
    port = int(found["port"]) if found and found["port"] else None
    if found is None or (port is not None and not 0 < port < 1 << 16):
        raise InputError(f"{where}: expected [USER@]ADDRESS[:PORT], found '{text}'")
    return Address(found["user"], found["host"].strip("[]"), port)
