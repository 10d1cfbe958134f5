"""Reads many boards from a CSV file or from the hosts of an ssh config.

    name,host,profile,fingerprint,site
    pi-1,pi@10.0.3.1,rpi4,SHA256:...,lab
    pi-2,10.0.3.2:2222,,,field

A column is an inventory key, `fingerprint` of the host key, or otherwise a label.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from edgekit.host.deploy.inventory import BoardEntry
from edgekit.host.deploy.transport.ssh_config import SshTarget, hops, literal_hosts
from edgekit.host.errors import InputError
from edgekit.host.fleet.address import parse_address
from edgekit.host.fleet.select import place

_KEYS = ("name", "host", "profile", "user", "port", "identity", "host_key", "fingerprint")
_MOST_BYTES = 64 << 20
_MOST_SHOWN = 12


@dataclass(frozen=True)
class BoardCandidate:
    """A board to be added to the inventory. `entry` has no profile (empty) or host key (None) where
    none was given; `fingerprint` is the expected one of the host key; `where` is its source, for
    messages."""

    entry: BoardEntry
    where: str
    fingerprint: str | None = None


def from_csv(file: Path) -> list[BoardCandidate]:
    """Reads boards from a CSV file. InputError names the file, line and column of an error."""
    rows = _read_csv_rows(file)
    header = [name.strip() for name in rows[0][1]]
    if "host" not in header:
        raise InputError(
            f"{file}: line {rows[0][0]}: expected names of columns including host "
            f"({', '.join(_KEYS)}, and labels), found {', '.join(header) or 'none'}"
        )
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice or "" in header:
        raise InputError(
            f"{file}: line {rows[0][0]}: expected a name for each column, each once, found "
            f"{', '.join(twice) or 'one without'}"
        )
    found = []
    for line, cells in rows[1:]:
        where = f"{file}: line {line}"
        if len(cells) != len(header):
            raise InputError(f"{where}: expected {len(header)} cells, found {len(cells)}")
        found.append(
            _parse_candidate(where, dict(zip(header, map(str.strip, cells), strict=True)), file)
        )
    if not found:
        raise InputError(f"{file}: expected a board on each line below the first, found none")
    return found


def from_ssh_config(patterns: Sequence[str], config: Path) -> list[BoardCandidate]:
    """Hosts of an ssh config that match one of the patterns, each reached the way `ssh` would by
    that name. InputError for a pattern without matches."""
    names = literal_hosts(config)
    chosen: dict[str, None] = {}
    for pattern in patterns:
        like = [name for name in names if fnmatchcase(name, pattern)]
        if not like:
            shown = ", ".join(names[:_MOST_SHOWN]) or "none"
            more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
            raise InputError(
                f"--ssh {pattern}: expected a Host of {config} that matches it, found none; hosts "
                f"there: {shown}{more}"
            )
        chosen.update(dict.fromkeys(like))
    return [
        BoardCandidate(BoardEntry(name, "", host=name), f"{config}: Host {name}") for name in chosen
    ]


def check_each_once(candidates: Iterable[BoardCandidate], config: Path) -> None:
    """Raises InputError if two share a name, or a location as resolved with `config`."""
    names: dict[str, BoardCandidate] = {}
    places: dict[tuple[object, ...], BoardCandidate] = {}
    for each in candidates:
        entry = each.entry
        first = names.setdefault(entry.name, each)
        if first is not each:
            raise InputError(
                f"{each.where}: expected a name that no other board has, found '{entry.name}', "
                f"which {first.where} has"
            )
        assert entry.host is not None
        hop = hops(SshTarget(entry.name, entry.host, entry.port, entry.user, config=config))[-1]
        at = replace(entry, host=hop.host, port=hop.port, user=hop.user)
        first = places.setdefault(place(at), each)
        if first is not each:
            raise InputError(
                f"{each.where}: expected each board once, found '{entry.name}' at {hop}, where "
                f"'{first.entry.name}' of {first.where} is; leave one out"
            )


def _read_csv_rows(file: Path) -> list[tuple[int, list[str]]]:
    """Non-empty lines with their numbers; at least one."""
    try:
        if not file.is_file():
            raise InputError(f"{file}: expected a CSV file of boards, found none")
        if file.stat().st_size > _MOST_BYTES:
            raise InputError(f"{file}: expected at most {_MOST_BYTES} bytes, found more")
        text = file.read_text(encoding="utf-8-sig")
        first = text.partition("\n")[0]
        semicolons = ";" in first and "," not in first  # common in European locales
        reader = csv.reader(text.splitlines(), strict=True, delimiter=";" if semicolons else ",")
        rows = [(reader.line_num, row) for row in reader if any(map(str.strip, row))]
    except OSError as error:
        raise InputError(f"{file}: expected a readable file, found: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file}: expected CSV in UTF-8, found: {error}") from None
    if not rows:
        raise InputError(f"{file}: expected a line with the names of columns, found nothing")
    return rows


def _parse_candidate(where: str, cells: Mapping[str, str], file: Path) -> BoardCandidate:
    given = {key: cells[key] for key in _KEYS if cells.get(key)}
    if "host" not in given:
        raise InputError(f"{where}: host: expected [USER@]ADDRESS[:PORT], found none")
    address = parse_address(given["host"], f"{where}: host")
    port = given.get("port")
    if port is not None and not (re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 1 << 16):
        raise InputError(f"{where}: port: expected 1 to 65535, found '{port:.60}'")
    identity = given.get("identity")
    entry = BoardEntry(
        given.get("name", address.host),
        given.get("profile", ""),
        host=address.host,
        port=int(port) if port else address.port,
        user=given.get("user", address.user),
        identity=file.absolute().parent / Path(identity).expanduser() if identity else None,
        host_key=given.get("host_key"),
        labels={key: value for key, value in cells.items() if key not in _KEYS and value},
    )
    fingerprint = given.get("fingerprint")
    if fingerprint is not None and not fingerprint.startswith("SHA256:"):
        raise InputError(
            f"{where}: fingerprint: expected SHA256:..., as ssh-keygen -l shows it, found "
            f"'{fingerprint}'"
        )
    return BoardCandidate(entry, where, fingerprint)
