"""Field profiles of models: pulled from boards, deduplicated, queried with SQL."""

from edgekit.host.fleet.profiles.bus import Bus
from edgekit.host.fleet.profiles.catalog import BoardSummary
from edgekit.host.fleet.profiles.compare import ReleaseComparison, TimeChange, compare
from edgekit.host.fleet.profiles.enroll import enroll, revoke, sender_line, upload
from edgekit.host.fleet.profiles.fields import (
    Agreement,
    StrayTensor,
    agreements,
    field_ranges,
    stray_tensors,
)
from edgekit.host.fleet.profiles.otlp import MetricsExporter
from edgekit.host.fleet.profiles.pull import Pulled, pull, switch
from edgekit.host.fleet.profiles.query import (
    CallTimes,
    QueryResult,
    Source,
    Views,
    asking,
    call_times,
    export,
    query,
)
from edgekit.host.fleet.profiles.server import ProfileServer, renew_certificate
from edgekit.host.fleet.profiles.shared import SharedStore
from edgekit.host.fleet.profiles.store import ProfileStore, StoredBatches
from edgekit.host.fleet.profiles.writer import ProfileWriter, WriterCounts

__all__ = [
    "Agreement",
    "BoardSummary",
    "Bus",
    "CallTimes",
    "MetricsExporter",
    "ProfileServer",
    "ProfileStore",
    "ProfileWriter",
    "Pulled",
    "QueryResult",
    "ReleaseComparison",
    "SharedStore",
    "Source",
    "StoredBatches",
    "StrayTensor",
    "TimeChange",
    "Views",
    "WriterCounts",
    "agreements",
    "asking",
    "call_times",
    "compare",
    "enroll",
    "export",
    "field_ranges",
    "pull",
    "query",
    "renew_certificate",
    "revoke",
    "sender_line",
    "stray_tensors",
    "switch",
    "upload",
]
