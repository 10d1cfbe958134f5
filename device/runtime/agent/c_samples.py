"""Converts the samples written by C programs (kernels/application/samples.c) to batches.

spool/samples/<number>-<uuid>.json   one batch of one release, written atomically; the lowest
                                     numbers are the oldest, and are dropped to free space
spool/samples/.new, lock             of the writing program

The C code does not handle signatures, manifests or sequences; it only records samples. The
supervisor, `profile`, `push-profiles`, and a deploy before it removes a release convert them.
"""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.batch import (
    Batch,
    Environment,
    MeasuredRelease,
    OperatorSpread,
    Spread,
)
from edgekit.device.runtime.agent.cores import core_kinds
from edgekit.device.runtime.agent.sampler import measured_release, spool_of
from edgekit.device.runtime.agent.specs import OperatorSpec
from edgekit.device.runtime.agent.spool import Spool
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.agent.strict import (
    distinct_keys,
    each,
    integer,
    keys_of,
    matching,
    no_constant,
    number,
    short,
)
from edgekit.device.runtime.agent.variants import numbered
from edgekit.device.runtime.errors import BusyError, DeviceError, InputError

_FILE = re.compile(r"[0-9]{12}-([0-9a-f]{32})\.json")
_DOCUMENT = re.compile(rb'\{"crc32": ([0-9]{1,10}), "samples": (.*)\}\n', re.DOTALL)
_MOST_BYTES = 1 << 19  # of all files, in C; hence of each one
_MOST_NS = 1 << 62
_HEX = re.compile("[0-9a-f]{32}")
_BOOT = re.compile("[0-9a-f-]{0,36}")
_RELEASE = re.compile("[0-9a-f]{16}")
_NAME = re.compile("[a-z0-9_-]{0,63}")
_GOVERNOR = re.compile("[A-Za-z0-9_-]{1,63}")
_NUMBERS = ("frequency_mhz", "temperature_c", "others", "load")
_INTEGERS = ("available_bytes", "resident_bytes")
_KEYS = (
    *("uuid", "boot", "name", "release", "threads", "began_ns", "ended_ns", "clock", "lost"),
    *("inferences", "core", "governor", "throttled", *_NUMBERS, *_INTEGERS, "whole", "operators"),
)


def take_samples(store: Store) -> None:
    """Moves the samples of C programs into the spool. Damaged files, and files of deleted releases,
    are quarantined and counted; files that the spool cannot accept right now stay."""
    spool = spool_of(store)
    with contextlib.suppress(OSError, BusyError):
        for path in waiting(spool.folder / "samples"):
            _spool_file(spool, Store(store.board), path)


def _spool_file(spool: Spool, board: Store, path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # another process took it
        try:
            spool.add(_parse_batch(board, path))
        except (InputError, ValueError, RecursionError):
            spool.quarantine(path)
        else:
            path.unlink()


def waiting(folder: Path) -> List[Path]:
    """Returns the sample files, oldest first."""
    with contextlib.suppress(OSError):
        return sorted(path for path in folder.iterdir() if _FILE.fullmatch(path.name))
    return []


def _parse_batch(board: Store, path: Path) -> Batch:
    """Parses a file into a batch; InputError if it is damaged or its release was deleted."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    found = _DOCUMENT.fullmatch(data)
    if found is None or int(found[1]) != zlib.crc32(found[2]):
        raise InputError(f"{path.name}: expected intact samples, found damaged ones")
    read = json.loads(found[2], object_pairs_hook=distinct_keys, parse_constant=no_constant)
    raw = keys_of(read, path.name, _KEYS, ("variant",))
    name = matching(raw["name"], "name", _NAME, "a name")
    release = matching(raw["release"], "release", _RELEASE, "a release")
    try:
        manifest = (board.named(name) if name else board).manifest(release)
    except DeviceError as error:
        raise InputError(f"{path.name}: release {release}: {short(error)}") from None
    threads = integer(raw["threads"], "threads", 0, 1 << 16)
    rows = each(raw["operators"], "operators", _parse_spread)
    number = integer(raw.get("variant", 0), "variant")
    specs = numbered(manifest.every_variant(), number).operators
    if len(rows) != len(specs):
        raise InputError(f"{path.name}: expected {len(specs)} operators, found {len(rows)}")
    return _build_batch(raw, rows, specs, measured_release(manifest, number, max(threads, 1)))


def _build_batch(
    raw: Dict[str, Any],
    rows: Sequence[Spread],
    specs: Sequence[OperatorSpec],
    subject: MeasuredRelease,
) -> Batch:
    inferences, total = (
        integer(raw["inferences"], "inferences", 1),
        _parse_spread(raw["whole"], "whole"),
    )
    core = integer(raw["core"], "core", -1, 1 << 16)
    governor = raw["governor"]
    return Batch(
        uuid=matching(raw["uuid"], "uuid", _HEX, "32 hexadecimal digits"),
        boot=matching(raw["boot"], "boot", _BOOT, "a boot id").replace("-", ""),
        began_ns=integer(raw["began_ns"], "began_ns", 0, _MOST_NS),
        ended_ns=integer(raw["ended_ns"], "ended_ns", 0, _MOST_NS),
        clock=number(raw["clock"], "clock"),
        lost=integer(raw["lost"], "lost"),
        subject=subject,
        inferences=inferences,
        every=inferences / total.samples,
        whole=total,
        operators=tuple(OperatorSpread(s.name, s.op, s.kernel, *r) for s, r in zip(specs, rows)),
        environment=Environment(
            cluster=core_kinds(features.cpuinfo()).get(core, ""),
            governor=governor and matching(governor, "governor", _GOVERNOR, "a governor"),
            throttled=None if raw["throttled"] is None else bool(raw["throttled"]),
            **{key: _or_none(number, raw[key], key) for key in _NUMBERS},
            **{key: _or_none(integer, raw[key], key) for key in _INTEGERS},
        ),
    )


def _parse_spread(raw: object, where: str) -> Spread:
    numbers = each(raw, where, lambda n, at: integer(n, at, 0, _MOST_NS))
    if len(numbers) != len(Spread._fields) or not numbers[0]:
        raise InputError(
            f"{where}: expected samples, median, 90th percentile and maximum, found others"
        )
    return Spread(*numbers)


def _or_none(parse: Callable[[object, str], Any], raw: object, where: str) -> Any:
    return None if raw is None else parse(raw, where)
