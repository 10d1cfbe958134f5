"""Converts a board's probe to the host's types."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from edgekit.device.runtime.agent.clusters import Cluster
from edgekit.device.runtime.agent.probe import Probe
from edgekit.host.deploy.release.answers import Document
from edgekit.host.deploy.release.runtime import BoardCalls
from edgekit.host.errors import IncompatibleError

OLDEST_GLIBC = (2, 28)  # of the profiles' compile targets
_OLDEST = ".".join(map(str, OLDEST_GLIBC))


def probe(board: BoardCalls) -> Probe:
    """Probes the board."""
    return probed(board.call("probe"))


def probed(found: Document) -> Probe:
    """Parses the probe in an answer."""
    lists = {name: tuple(found[name]) for name in ("compatible", "core_names", "features")}
    clusters = tuple(Cluster(**known(Cluster, each)) for each in found["clusters"])
    return Probe(**known(Probe, found) | lists | {"clusters": clusters})


def check_folder(board: str, found: Probe) -> None:
    """IncompatibleError if the board's folder cannot hold releases: files that are executed."""
    if found.folder_trouble:
        raise IncompatibleError(
            f"board '{board}': expected a folder whose files can be written and executed, found "
            f"{found.folder}, {found.folder_trouble}; {folder_advice(board, found)}"
        )


def check_c_library(board: str, found: Probe) -> None:
    """IncompatibleError if the board's C library cannot load what edgekit compiles."""
    if fix := c_library_advice(found):
        raise IncompatibleError(
            f"board '{board}': expected the C library glibc {_OLDEST} or newer, found "
            f"{found.c_library}; {fix}"
        )


def c_library_advice(found: Probe) -> str:
    """Returns what to do about the board's C library; empty if it is new enough, or unknown."""
    name, _, version = found.c_library.partition(" ")
    if name == "musl":
        return "install gcompat (on Alpine: apk add gcompat), or a system with glibc, as Debian"
    if name == "glibc":
        numbers = tuple(int(part) for part in re.findall("[0-9]+", version)[:2])
        return "upgrade the board's system: Debian 10 has it" if numbers < OLDEST_GLIBC else ""
    return "install a system with glibc, such as Debian" if name else ""


def folder_advice(board: str, found: Probe) -> str:
    """Returns how to get a folder that can hold releases."""
    if board == "local":
        return f"set EDGEKIT_HOME to another, such as {found.other_folder or 'PATH'}"
    if found.other_folder:
        return f"name another, to `edgekit board add`: --folder {found.other_folder}"
    return "mount it writable and with exec, or name another, to `edgekit board add`: --folder PATH"


def known(kind: type[Any], found: Document) -> Document:
    """Keeps only the dataclass's fields: a runtime of another version may send more."""
    return {field.name: found[field.name] for field in fields(kind) if field.name in found}
