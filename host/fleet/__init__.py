"""Operations on many boards: selecting them and running the same work on each."""

from edgekit.host.fleet.cancelable import CanceledError
from edgekit.host.fleet.progress import Tally
from edgekit.host.fleet.runner import (
    PARALLEL,
    BoardOutcome,
    FleetRun,
    Observer,
    Silent,
    Turn,
    run_on,
)
from edgekit.host.fleet.select import check_places, parse_selection, place, select

__all__ = [
    "PARALLEL",
    "BoardOutcome",
    "CanceledError",
    "FleetRun",
    "Observer",
    "Silent",
    "Tally",
    "Turn",
    "check_places",
    "parse_selection",
    "place",
    "run_on",
    "select",
]
