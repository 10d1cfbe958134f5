"""Follows keys and certificates that the owner of releases has replaced, as root metadata says.

fetch/followed.json    the keys of the role targets that trusted_keys was last matched with

Who may sign what this board should run may also sign the releases themselves: keys that root adds
to targets become trusted, keys that it drops do not stay trusted.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, Dict, List

from edgekit.device.runtime.agent.push import PushTarget, home_bytes, home_of, read_home
from edgekit.device.runtime.agent.sampler import spool_of
from edgekit.device.runtime.agent.session import alone
from edgekit.device.runtime.agent.signing import replace_keys
from edgekit.device.runtime.agent.store import Store, write_synced
from edgekit.device.runtime.agent.trusted import TARGETS, role_keys
from edgekit.device.runtime.record import asdict

_NOTE = "followed.json"


class Renewal:
    """What the board in `store`, whose fetch folder is `folder`, follows; `root` is the metadata
    that it trusts before an update."""

    def __init__(self, store: Store, folder: Path, root: Dict[str, Any]) -> None:
        self._store, self._note = store, folder / _NOTE
        if not self._followed():  # so that an update of root that is cut short is noticed later
            self._write(_lines(root))

    def follow_keys(self, root: Dict[str, Any]) -> None:
        """Matches this board's trusted keys with verified root metadata."""
        old, new = self._followed(), _lines(root)
        if old == new:
            return
        with alone(self._store):
            replace_keys(self._store, [key for key in old if key not in new], new)
        self._write(new)

    def _followed(self) -> List[str]:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            found = json.loads(self._note.read_bytes())
            if isinstance(found, list) and all(isinstance(line, str) for line in found):
                return found
        return []

    def _write(self, lines: List[str]) -> None:
        write_synced(self._note, json.dumps(lines).encode())


def keep_certificate(store: Store, home: PushTarget, presented: str) -> None:
    """Pins the certificate that the owner announced and the server has presented, instead of the
    one before."""
    path = home_of(spool_of(store))
    if presented != home.certificate and read_home(path) == home:
        write_synced(path, home_bytes(PushTarget(**{**asdict(home), "certificate": presented})))


def _lines(root: Dict[str, Any]) -> List[str]:
    return sorted(role_keys(root, TARGETS)[0].values())
