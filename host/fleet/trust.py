"""Establishes trust in host keys: by a known_hosts file, by fingerprints, or by asking a person.

A key is never trusted merely because a board presents it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.host.deploy.transport.ssh import SshTarget, fetch_host_key
from edgekit.host.deploy.transport.ssh_config import hops, user_config
from edgekit.host.deploy.transport.ssh_keys import KnownHosts, fingerprint, parse_host_key
from edgekit.host.errors import AuthenticationError, InputError
from edgekit.host.fleet.runner import FleetRun, Observer, run_on
from edgekit.host.fleet.sources import BoardCandidate

KEY_SECONDS = 30.0
_PREFERRED = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")


@dataclass(frozen=True)
class Vouched:
    """Boards whose key is trusted, and boards whose key is not."""

    known: tuple[BoardCandidate, ...]
    unknown: tuple[BoardCandidate, ...]


def vouch(candidates: Sequence[BoardCandidate], known_hosts: Path | None) -> Vouched:
    """Pins the candidates' own keys, else those in a known_hosts file. Contacts no board.
    InputError if a key or the file is invalid."""
    if known_hosts is not None and not known_hosts.is_file():
        raise InputError(f"--known-hosts: expected a known_hosts file, found none at {known_hosts}")
    held = KnownHosts((known_hosts,) if known_hosts else ())
    known, unknown = [], []
    for each in candidates:
        if each.entry.host_key is not None:
            parse_host_key(each.entry.host_key, f"{each.where}: host_key")
            known.append(each)
        elif line := _known_key_line(each, held):
            known.append(replace(each, entry=replace(each.entry, host_key=line)))
        else:
            unknown.append(each)
    return Vouched(tuple(known), tuple(unknown))


def show_keys(
    candidates: Sequence[BoardCandidate], parallel: int, watch: Observer
) -> FleetRun[BoardCandidate]:
    """Fetches the candidates' keys from their boards. A key that does not match the expected
    fingerprint gives AuthenticationError; keys without one still have to be confirmed."""
    by_name = {each.entry.name: each for each in candidates}

    def shown(candidate: BoardCandidate) -> BoardCandidate:
        entry = candidate.entry
        assert entry.host is not None
        line = fetch_host_key(entry.host, entry.port, KEY_SECONDS, config=user_config())
        found = fingerprint(line)
        if candidate.fingerprint not in (None, found):
            raise AuthenticationError(
                f"board '{entry.name}': expected the host key {candidate.fingerprint} of "
                f"{candidate.where}, found {found}; compare on the board: ssh-keygen -lf "
                "/etc/ssh/ssh_host_ed25519_key.pub"
            )
        return replace(candidate, entry=replace(entry, host_key=line))

    entries = [each.entry for each in candidates]
    return run_on(
        entries, lambda turn: shown(by_name[turn.board.name]), parallel=parallel, watch=watch
    )


def _known_key_line(candidate: BoardCandidate, held: KnownHosts) -> str | None:
    """The board's key in known_hosts, of the type that boards present first. Keys that do not match
    the expected fingerprint are ignored."""
    entry = candidate.entry
    assert entry.host is not None
    target = SshTarget(entry.name, entry.host, entry.port, entry.user, config=user_config())
    hop = hops(target)[-1]
    keys = [
        key
        for key in held.keys(hop.name, hop.host, hop.port)
        if candidate.fingerprint in (None, key.fingerprint)
    ]
    rank = {kind: number for number, kind in enumerate(_PREFERRED)}
    best = min(keys, key=lambda key: rank.get(key.type, len(rank)), default=None)
    return None if best is None else best.line
