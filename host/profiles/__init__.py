"""Profiles of models in the field: fetched from boards, stored once each, asked with SQL."""

from edgekit.host.profiles.catalogue import BoardSummary
from edgekit.host.profiles.compare import Change, Comparison, compare
from edgekit.host.profiles.enroll import enroll, revoke, upload
from edgekit.host.profiles.pull import Pulled, pull, switch
from edgekit.host.profiles.query import Answer, asking, export, query
from edgekit.host.profiles.server import ProfileServer
from edgekit.host.profiles.store import ProfileStore, Stored

__all__ = [
    "Answer",
    "BoardSummary",
    "Change",
    "Comparison",
    "ProfileServer",
    "ProfileStore",
    "Pulled",
    "Stored",
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
