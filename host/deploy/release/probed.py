"""Converts a board's probe to the host's types."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from edgekit.device.runtime.agent.clusters import Cluster
from edgekit.device.runtime.agent.probe import Probe
from edgekit.host.deploy.release.answers import Document
from edgekit.host.deploy.release.runtime import BoardCalls


def probe(board: BoardCalls) -> Probe:
    """Probes the board."""
    return probed(board.call("probe"))


def probed(found: Document) -> Probe:
    """Parses the probe in an answer."""
    lists = {name: tuple(found[name]) for name in ("compatible", "core_names", "features")}
    clusters = tuple(Cluster(**known(Cluster, each)) for each in found["clusters"])
    return Probe(**known(Probe, found) | lists | {"clusters": clusters})


def known(kind: type[Any], found: Document) -> Document:
    """Keeps only the dataclass's fields: a runtime of another version may send more."""
    return {field.name: found[field.name] for field in fields(kind) if field.name in found}
