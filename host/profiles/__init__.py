"""Profiles of models in the field: fetched from boards, stored once each, asked with SQL."""

from edgekit.host.profiles.catalogue import BoardSummary
from edgekit.host.profiles.pull import Pulled, pull, switch
from edgekit.host.profiles.query import Answer, export, query
from edgekit.host.profiles.store import ProfileStore, Stored

__all__ = [
    "Answer",
    "BoardSummary",
    "ProfileStore",
    "Pulled",
    "Stored",
    "export",
    "pull",
    "query",
    "switch",
]
