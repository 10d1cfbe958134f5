"""Keeps the compile decisions of releases built here, by release id, for later queries.

A profile fetched from a board names only its release. Which rule chose each kernel, and what the
alternatives were, is known only on the machine that built the release.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import data_folder

_MOST = 500  # releases; the newest are kept
_SUFFIX = ".json.gz"
_RELEASE = re.compile("[0-9a-f]{16}")
_LOG = logging.getLogger(__name__)


def remember(release: str, explained: Mapping[str, Any], most: int = _MOST) -> None:
    """Stores the output of `compile --explain` for a release, and keeps the newest `most` of them.

    A full disk is not an error.
    """
    folder = _explanations_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps(explained, separators=(",", ":")).encode()
        atomic_write(folder / f"{release}{_SUFFIX}", gzip.compress(content, 6, mtime=0))
        kept = sorted(folder.glob(f"*{_SUFFIX}"), key=_mtime, reverse=True)
        for old in kept[most:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        _LOG.info("could not save the explanation of release %s: %s", release, error)


def renew(release: str) -> bool:
    """Counts a release as a new one, so that its explanation is kept; False if there is none."""
    try:
        os.utime(_explanations_folder() / f"{release}{_SUFFIX}")
    except OSError:
        return False
    return True


def recall(release: str) -> Mapping[str, Any] | None:
    """Returns the stored explanation; None if the release was built elsewhere or has expired."""
    if not _RELEASE.fullmatch(release):  # the id comes from a board
        return None
    try:
        found = json.loads(
            gzip.decompress((_explanations_folder() / f"{release}{_SUFFIX}").read_bytes())
        )
    except (OSError, EOFError, zlib.error, ValueError):
        return None
    return found if isinstance(found, dict) else None


def variant_of(document: Mapping[str, Any] | None, variant: int) -> Mapping[str, Any] | None:
    """Returns the explanation of one input-shape variant."""
    if document is None or variant == 0:
        return document
    others = document.get("variants", [])
    found: Mapping[str, Any] | None = others[variant - 1] if variant <= len(others) else None
    return found


def nna_account(release: str, variant: int = 0) -> Mapping[str, Any] | None:
    """Returns the cost of a run on the board's NNA; None if it has none, or if it is unknown
    here."""
    document = variant_of(recall(release), variant)
    return document.get("nna") if document else None


def nna_lines(account: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Formats an account for people; empty for None."""
    if account is None:
        return ()
    if not account["layers"]:
        return ("no operator on the NNA",)
    total, schedule = account["total"], account["schedule"]
    stalls = ", ".join(f"{cause} {n:,}" for cause, n in total["stalls"].items() if n)
    return (
        f"{len(account['layers'])} operators in {total['cycles']:,} cycles, without overlap "
        f"{total['serial_cycles']:,}, on the vector unit {total['vector_cycles']:,}",
        f"{sum(total['stalls'].values()):,} cycles stalled{f' ({stalls})' if stalls else ''}",
        f"{total['macs_useful']:,} useful MACs of {total['macs_done']:,} "
        f"({total['macs_useful'] / total['macs_done']:.1%}), "
        f"{_format_kib(total['bytes_loaded'])} loaded, "
        f"{_format_kib(total['bytes_stored'])} stored, "
        f"weights {_format_kib(total['weight_image_bytes'])}",
        f"NNA {schedule['nna_us']:,.0f} µs and core {schedule['others_us']:,.0f} µs, "
        f"{schedule['overlap_us']:,.0f} µs of them at the same time, "
        f"{schedule['makespan_us']:,.0f} µs in all by the cost model",
    )


def _format_kib(size: int) -> str:
    return f"{size / 1024:,.1f} KiB"


def _explanations_folder() -> Path:
    return data_folder() / "explanations"


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # removed by another process
        return 0.0
