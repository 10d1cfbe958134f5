"""Published latencies that estimates are compared with: ncnn's networks on boards people measured.

The figures themselves are not part of edgekit: `published` reads them from a folder named by the
user (data/board_times/published.json and networks/*.param, see docs/estimates.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.errors import InputError

# The only networks that core parameters may be fitted to.
FITTED = ("mobilenet", "mobilenet_v2", "resnet18", "squeezenet")
_SIZES = {
    "FastestDet": 352,
    "blazeface": 128,
    "nanodet_m": 320,
    "squeezenet": 227,
    "squeezenet_int8": 227,
    "yolo-fastest-1.1": 320,
    "yolo-fastestv2": 352,
}


@dataclass(frozen=True)
class Witness:
    """A published board: how to find its row, and how we model it.

    row: part of its published name. profile and cluster: source of the memory parameters;
    clock_mhz: its own. wheel: the ncnn version closest to the row's date among those with wheels
    for the root's Python, since kernels changed over the years; 1.0.20221128, the oldest, does not
    select A53's own kernels. early: the row predates all wheels. threads: default number to
    compare. kind: only networks of float or int8. lent: the profile is another board's, whose cores
    may slow each other down in DRAM more or less.
    """

    name: str
    row: str
    core: str
    profile: str
    clock_mhz: int
    wheel: str
    cluster: str = "cpu"
    early: bool = False
    threads: int = 1
    kind: str = ""
    lent: bool = False


WITNESSES = (
    Witness("rpi3", "Raspberry Pi 3 Model B+", "a53", "rpi3", 1400, "1.0.20230517"),
    Witness("sd410", "MSM8916", "a53", "rpi3", 1200, "1.0.20230517", early=True, lent=True),
    Witness("rk3399-little", "RK3399", "a53", "rk3399", 1500, "1.0.20230517", "little", early=True),
    Witness("rk3566", "OrangePicm4", "a55", "rk3566", 1800, "1.0.20240410"),
    Witness("rk3566-m2", "Station-M2", "a55", "rk3566", 1800, "1.0.20240410"),
    Witness("sd810", "MSM8994", "a57", "jetson-nano", 2000, "1.0.20230517", early=True, lent=True),
    Witness("rpi4", "Raspberry Pi 4 Model B", "a72", "rpi4", 1800, "1.0.20230517"),
    Witness("rk3399", "RK3399", "a72", "rk3399", 1800, "1.0.20230517", early=True),
    # Of an older README; add its rows to published.json ("core": "a73 2.4 GHz") to compare.
    Witness(
        "kirin970", "Kirin 970", "a73", "odroid-n2", 2362, "1.0.20230517", early=True, lent=True
    ),
    Witness("rpi5", "Raspberry Pi 5", "a76", "rpi5", 2400, "1.0.20240410", kind="float"),
    # Wheels of 2024 do not use dot products on A76; the published version does.
    Witness("rpi5-int8", "Raspberry Pi 5", "a76", "rpi5", 2400, "1.0.20261020", kind="int8"),
    Witness("visionfive2", "VisionFive2", "u74", "visionfive2", 1500, "1.0.20261020", threads=4),
)


@dataclass(frozen=True)
class Published:
    """Milliseconds by network, the minimum of a run, for one board and number of threads."""

    board: str
    core: str
    threads: int
    min_ms: Mapping[str, float]


def published(folder: Path) -> list[Published]:
    """The rows of published.json; InputError if it is missing or invalid."""
    path = folder / "data" / "board_times" / "published.json"
    try:
        rows = json.loads(path.read_bytes())["rows"]
        return [
            Published(
                str(row["board"]),
                str(row["core"]),
                int(row["threads"]),
                {str(name): float(ms) for name, ms in row["min_ms"].items()},
            )
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: expected published latencies, found {type(error).__name__}; name their "
            "folder: EDGEKIT_EXTRA_DATA=FOLDER"
        ) from None


def row_of(witness: Witness, rows: Sequence[Published], threads: int) -> Published | None:
    """The row of a witness; a board's big and little cores have separate rows."""
    own = (r for r in rows if witness.row in r.board and r.core.split()[0] == witness.core)
    return next((row for row in own if row.threads == threads), None)


def input_size(network: str) -> int:
    """Width and height of a network's input in benchncnn."""
    return _SIZES.get(network, 224)


def kind_of(network: str) -> str:
    """float or int8."""
    return "int8" if network.endswith("_int8") else "float"


def networks(folder: Path) -> dict[str, Path]:
    """The network definitions by name."""
    paths = sorted((folder / "data" / "board_times" / "networks").glob("*.param"))
    return {path.stem: path for path in paths}
