"""What a board says it is, as the rest of the host takes it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from edgekit.device.runtime.agent.clusters import Cluster
from edgekit.device.runtime.agent.probe import Probe
from edgekit.host.deploy.release.answers import Document
from edgekit.host.deploy.release.runtime import BoardCalls


def probe(board: BoardCalls) -> Probe:
    """What the board says it is."""
    return probed(board.call("probe"))


def probed(found: Document) -> Probe:
    """The probe in an answer."""
    lists = {name: tuple(found[name]) for name in ("compatible", "core_names", "features")}
    clusters = tuple(Cluster(**known(Cluster, each)) for each in found["clusters"])
    return Probe(**known(Probe, found) | lists | {"clusters": clusters})


def known(kind: type[Any], found: Document) -> Document:
    """What a dataclass has a field for: a runtime of another version may say more."""
    return {field.name: found[field.name] for field in fields(kind) if field.name in found}
