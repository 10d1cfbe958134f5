"""Profiles of models in the field: fetched from boards, stored once each, asked with SQL."""

from edgekit.host.profiles.bus import Bus
from edgekit.host.profiles.catalogue import BoardSummary
from edgekit.host.profiles.compare import Change, Comparison, compare
from edgekit.host.profiles.enroll import enroll, revoke, upload
from edgekit.host.profiles.pull import Pulled, pull, switch
from edgekit.host.profiles.query import Answer, Source, asking, export, query
from edgekit.host.profiles.server import ProfileServer
from edgekit.host.profiles.shared import SharedStore
from edgekit.host.profiles.store import ProfileStore, Stored
from edgekit.host.profiles.writer import ProfileWriter, Written

__all__ = [
    "Answer",
    "BoardSummary",
    "Bus",
    "Change",
    "Comparison",
    "ProfileServer",
    "ProfileStore",
    "ProfileWriter",
    "Pulled",
    "SharedStore",
    "Source",
    "Stored",
    "Written",
    "asking",
    "compare",
    "enroll",
    "export",
    "pull",
    "query",
    "revoke",
    "switch",
    "upload",
]
