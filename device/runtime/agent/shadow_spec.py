"""The part of a manifest that describes a release's float model; see shadow.py."""

from __future__ import annotations

import re
from typing import Optional, Tuple

from edgekit.device.runtime.agent.specs import BoardMemory, memory_of, path_of
from edgekit.device.runtime.agent.strict import bad, each, integer, keys_of, matching, number, text
from edgekit.device.runtime.record import Record

CLASS, DIFFERENCE = "class", "difference"  # what must agree: the largest value, or all values
MOST_WATCHED = 128
_SHA256 = re.compile(r"[0-9a-f]{64}")


class WatchedTensor(Record):
    """A tensor of the float model, and the range that the quantized one has for it; None where the
    two are not comparable."""

    name: str
    low: Optional[float]
    high: Optional[float]


class ShadowSpec(Record):
    """The float model of a quantized release: `library` computes the release's outputs, then
    others; its inputs and outputs include the `watched` tensors. It repeats about one in `every`
    inferences; `measure` says what must agree. `model_sha256` is that of the float model's file."""

    library: str
    memory: BoardMemory
    every: int
    measure: str
    model_sha256: str
    watched: Tuple[WatchedTensor, ...]


def shadow_of(raw: object, where: str) -> ShadowSpec:
    """Parses the manifest's `shadow`; InputError names the invalid part."""
    keys = keys_of(raw, where, ShadowSpec.field_names)
    found = ShadowSpec(
        path_of(keys["library"], f"{where}.library"),
        memory_of(keys["memory"], f"{where}.memory"),
        integer(keys["every"], f"{where}.every", 1),
        text(keys["measure"], f"{where}.measure"),
        matching(keys["model_sha256"], f"{where}.model_sha256", _SHA256, "64 hex digits"),
        each(keys["watched"], f"{where}.watched", _watched_of),
    )
    if found.measure not in (CLASS, DIFFERENCE):
        raise bad(f"{where}.measure", f"{CLASS} or {DIFFERENCE}", found.measure)
    if len(found.watched) > MOST_WATCHED:
        raise bad(f"{where}.watched", f"at most {MOST_WATCHED}", len(found.watched))
    return found


def _watched_of(raw: object, where: str) -> WatchedTensor:
    keys = keys_of(raw, where, WatchedTensor.field_names)
    low, high = (
        None if keys[name] is None else number(keys[name], f"{where}.{name}")
        for name in ("low", "high")
    )
    return WatchedTensor(text(keys["name"], f"{where}.name"), low, high)
