"""Deletes what a folder of releases needs no more.

A metadata version that was replaced stays for as long as a board may still trust the snapshot that
names it. What its releases consist of stays with it, so a download that has begun can end.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.delta import delta_name
from edgekit.device.runtime.agent.manifest import parse_manifest
from edgekit.device.runtime.agent.trusted import SNAPSHOT, TARGETS
from edgekit.device.runtime.errors import DeviceError
from edgekit.host.common.files import read_file
from edgekit.host.fleet.updates.metadata import DAYS, read_signed, signed_seconds

_GRACE = DAYS[SNAPSHOT] * 86400


def sweep(folder: Path, now: float) -> None:
    """Deletes old metadata, and contents that no remaining version names and that were not stored
    within the grace period. Deletes nothing if any metadata or manifest is damaged."""
    try:
        snapshots = _versions(folder, SNAPSHOT)
        old = _replaced(snapshots, now)
        targets = _versions(folder, TARGETS)
        named = {
            signed["meta"]["targets.json"]["version"]
            for version, signed in snapshots.items()
            if version not in old
        }
        kept = {version for version in targets if version in named} | {max(targets)}
        needed = {one for version in kept for one in _contents(folder, targets[version])}
    except (DeviceError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    for role, versions in ((SNAPSHOT, old), (TARGETS, targets.keys() - kept)):
        for version in versions:
            (folder / "metadata" / f"{version}.{role}.json").unlink(missing_ok=True)
    for path in _paths(folder / "files"):
        if path.name not in needed:
            _delete_old(path, now)
    left = {delta_name(path.name, "") for path in _paths(folder / "files")}
    for path in _paths(folder / "deltas"):
        if path.name.partition(".")[0] + "." not in left:
            _delete_old(path, now)


def _versions(folder: Path, role: str) -> dict[int, dict[str, Any]]:
    """The signed parts of all versions of a role."""
    name = re.compile(rf"([0-9]{{1,9}})\.{role}\.json")
    found = ((name.fullmatch(path.name), path) for path in _paths(folder / "metadata"))
    return {int(match[1]): read_signed(path) for match, path in found if match}


def _replaced(snapshots: Mapping[int, Mapping[str, Any]], now: float) -> set[int]:
    """The versions whose next one has been there for the grace period."""
    order = sorted(snapshots)
    return {
        version
        for version, following in itertools.pairwise(order)
        if now - signed_seconds(snapshots[following]) > _GRACE
    }


def _contents(folder: Path, targets: Mapping[str, Any]) -> Iterator[str]:
    """The SHA-256 of all files of the releases that targets name."""
    for target in targets["targets"].values():
        manifest = target["hashes"]["sha256"]
        yield manifest
        if target["custom"]["signature"]:
            yield target["custom"]["signature"]["sha256"]
        for entry in parse_manifest(read_file(folder / "files" / manifest)).files:
            yield entry.sha256


def _paths(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []


def _delete_old(path: Path, now: float) -> None:
    """Deletes a file unless it may be new; then its offer is still to come."""
    with contextlib.suppress(FileNotFoundError):
        if now - path.stat().st_mtime > _GRACE:
            path.unlink()
