"""Checks independently of the runtime that a board runs one intact release.

It works through any Transport and needs only the board's Python, so it sees the state that a kill
or power cut left behind before the runtime recovers it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.host.deploy.transport import Transport

_SECONDS = 120.0
_PROGRAM = r"""
import hashlib, json, os
def look(root):
    problems = []
    def target(name):
        try:
            return os.path.basename(os.readlink(os.path.join(root, name)))
        except FileNotFoundError:
            return None
    def check(release):
        folder = os.path.join(root, "releases", release)
        try:
            with open(os.path.join(folder, "manifest.json"), "rb") as file:
                manifest = json.loads(file.read())
        except (OSError, ValueError) as error:
            problems.append("%s/manifest.json: %s" % (release, error))
            return
        if manifest["id"] != release:
            problems.append("%s/manifest.json: is of %s" % (release, manifest["id"]))
        for entry in manifest["files"]:
            try:
                with open(os.path.join(folder, entry["path"]), "rb") as file:
                    data = file.read()
            except OSError as error:
                problems.append("%s/%s: %s" % (release, entry["path"], error))
                continue
            if len(data) != entry["bytes"] or hashlib.sha256(data).hexdigest() != entry["sha256"]:
                problems.append("%s/%s: other bytes" % (release, entry["path"]))
    current, previous = target("current"), target("previous")
    for release in {current, previous} - {None}:
        check(release)
    found = {"current": current, "previous": previous, "problems": problems}
    return {**found, "pending": os.path.exists(os.path.join(root, "pending.json"))}
"""
_PRINTED = f"{_PROGRAM}print(json.dumps(look('.')))\n"
_HERE: dict[str, Any] = {}
exec(_PROGRAM, _HERE)


@dataclass(frozen=True)
class Found:
    """The releases linked, problems with their files, and whether a switch is uncommitted."""

    current: str | None
    previous: str | None
    problems: tuple[str, ...]
    pending: bool

    def torn(self, *whole: str) -> str:
        """Why the running release is not an intact one of `whole`; empty if it is."""
        if self.current not in whole:
            return f"expected one of {', '.join(whole)}, found {self.current}"
        return "; ".join(self.problems)


def look(transport: Transport) -> Found:
    """Inspect the board without changing anything."""
    command = [transport.python, "-I", "-S", "-c", _PRINTED]
    done = transport.run(command, deadline=_SECONDS)
    if done.exit_code != 0:
        raise RuntimeError(done.stderr.decode("utf-8", "replace"))
    return _found(json.loads(done.stdout))


def look_in(root: Path) -> Found:
    """Like `look`, for a directory on this machine, in this process."""
    return _found(_HERE["look"](str(root)))


def _found(seen: Mapping[str, Any]) -> Found:
    return Found(seen["current"], seen["previous"], tuple(seen["problems"]), seen["pending"])
