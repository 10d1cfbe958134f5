"""Releases that boards fetch: signed metadata and files in a folder that a server offers."""

from edgekit.host.fleet.updates.enroll import enroll_to_fetch
from edgekit.host.fleet.updates.folder import ReleaseFolder
from edgekit.host.fleet.updates.metadata import Offered, OwnerKeys
from edgekit.host.fleet.updates.report import BoardReport
from edgekit.host.fleet.updates.rotation import replace_key

__all__ = [
    "BoardReport",
    "Offered",
    "OwnerKeys",
    "ReleaseFolder",
    "enroll_to_fetch",
    "replace_key",
]
