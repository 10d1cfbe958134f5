"""Converts a board's probe to the host's types."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from edgekit.device.runtime.agent.clusters import Cluster
from edgekit.device.runtime.agent.probe import Probe
from edgekit.host.deploy.release.answers import Document
from edgekit.host.deploy.release.runtime import BoardCalls
from edgekit.host.errors import IncompatibleError


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
