"""The runtime's commands for field profiles."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Tuple

from edgekit.device.runtime.agent.arguments import positive
from edgekit.device.runtime.errors import Document, InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.arguments import AddCommand
    from edgekit.device.runtime.agent.store import Store


def add_profile_commands(command: AddCommand) -> None:
    """Adds `profile`, used by a fetching host, and `push-profiles`, with which the board sends."""
    if sub := command("profile", _profile, "output the profiles stored on this board"):
        sub.add_argument(
            "--acknowledge", metavar="SPOOL/SEQUENCE", help="newest profile stored on the host"
        )
        sub.add_argument("--most-bytes", type=positive, default=1 << 18)
        modes = ("on", "off", "explore")
        sub.add_argument("--switch", choices=modes, help="sampling, from the next start")
        sub.add_argument(
            "--sender", action="store_true", help="add the command that sends profiles"
        )
    if sub := command(
        "push-profiles", _push, "send the profiles stored on this board to their server"
    ):
        sub.add_argument("--every", metavar="SECONDS", type=positive, help="send at this interval")


def _profile(options: argparse.Namespace) -> Document:
    """Returns the document edgekit.profile.fetched/1 with the oldest batches, after deleting those
    that a host acknowledges having stored. `data` holds their files, compressed, as lines of
    base64."""
    import base64
    import zlib

    from edgekit.device.runtime.agent.c_samples import take_samples
    from edgekit.device.runtime.agent.sampler import spool_of
    from edgekit.device.runtime.agent.store import Store

    store = Store(options.root)
    spool = spool_of(store)
    if options.switch:
        spool.switch(options.switch)
    take_samples(store)
    if options.acknowledge:
        spool.acknowledge(*_parse_receipt(options.acknowledge))
    found = spool.fetch(options.most_bytes)
    return {
        "schema": "edgekit.profile.fetched/1",
        "on": not spool.is_off,
        "spool": found.spool,
        "through": found.through,
        "left": found.left,
        "dropped": found.dropped,
        "quarantined": found.quarantined,
        # Names folders of the board, so a pull does without it.
        **({"sender": _sender_line(store)} if options.sender else {}),
        "data": base64.encodebytes(zlib.compress(found.data)).decode("ascii"),
    }


def _sender_line(store: Store) -> str:
    """Returns the shell command that sends this board's profiles periodically; empty if no release
    is deployed whose runtime could run it."""
    import shlex
    import sys

    from edgekit.device.runtime.agent.manifest import RUNTIME

    for each in store.siblings():
        if each.links().current:
            runtime = each.root.absolute() / "current" / RUNTIME
            root = ["--root", str(each.board.absolute())]
            command = [sys.executable or "python3", str(runtime), *root, "push-profiles"]
            return shlex.join([*command, "--every", "600"])
    return ""


def _parse_receipt(text: str) -> Tuple[str, int]:
    spool, _, through = text.partition("/")
    if not (through.isascii() and through.isdigit() and len(through) <= 12):
        raise InputError(f"--acknowledge: expected SPOOL/SEQUENCE, found {text[:60]!r}")
    return spool, int(through)


def _push(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.c_samples import take_samples
    from edgekit.device.runtime.agent.push import Bandwidth, home_of, push, push_for_ever, read_home
    from edgekit.device.runtime.agent.sampler import spool_of
    from edgekit.device.runtime.agent.store import Store

    store = Store(options.root)
    spool = spool_of(store)
    if options.every:
        push_for_ever(spool, options.every, lambda: take_samples(store))
    home = read_home(home_of(spool))
    take_samples(store)
    sent = push(spool, home, Bandwidth(home.bits_per_second))
    return {"schema": "edgekit.profile.pushed/1", "board": home.board, "bytes": sent}
