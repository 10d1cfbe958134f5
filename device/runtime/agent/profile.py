"""What the runtime's command `profile` does: hands over what waits in the spool."""

from __future__ import annotations

import argparse
import base64
import zlib
from typing import Any, Dict, Tuple

from edgekit.device.runtime.agent.c_samples import take_samples
from edgekit.device.runtime.agent.sampler import spool_of
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import InputError


def profile(store: Store, options: argparse.Namespace) -> Dict[str, Any]:
    """The document edgekit.profile.fetched/1: the oldest batches, after what a host has stored by
    now was removed. `data` is their files, compressed, in lines of base64."""
    spool = spool_of(store)
    if options.switch:
        spool.switch(options.switch == "on")
    take_samples(store)
    if options.acknowledge:
        spool.acknowledge(*_receipt(options.acknowledge))
    found = spool.fetch(options.most_bytes)
    return {
        "schema": "edgekit.profile.fetched/1",
        "on": not spool.is_off,
        "spool": found.spool,
        "through": found.through,
        "left": found.left,
        "dropped": found.dropped,
        "quarantined": found.quarantined,
        "data": base64.encodebytes(zlib.compress(found.data)).decode("ascii"),
    }


def _receipt(text: str) -> Tuple[str, int]:
    spool, _, through = text.partition("/")
    if not (through.isascii() and through.isdigit() and len(through) <= 12):
        raise InputError(f"--acknowledge: expected SPOOL/SEQUENCE, found {text[:60]!r}")
    return spool, int(through)
