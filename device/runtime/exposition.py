"""Metrics as text in Prometheus' exposition format, version 0.0.4."""

from __future__ import annotations

from typing import Dict, Iterable, List, Tuple, Union

from edgekit.device.runtime.record import Record

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Dict[str, str]
Number = Union[int, float]


class Family(Record):
    """A metric with its samples: the suffix of the name (`_sum`, ...), labels and a value of each.
    `kind` is counter, gauge, summary or histogram."""

    name: str
    kind: str
    about: str
    samples: Tuple[Tuple[str, Labels, Number], ...]


def exposition(families: Iterable[Family]) -> bytes:
    """The text of all families that have samples."""
    lines: List[str] = []
    for family in families:
        if not family.samples:
            continue
        lines.append(f"# HELP {family.name} {family.about}\n")
        lines.append(f"# TYPE {family.name} {family.kind}\n")
        for suffix, labels, value in family.samples:
            pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            shown = f"{{{pairs}}}" if pairs else ""
            lines.append(f"{family.name}{suffix}{shown} {value!r}\n")
    return "".join(lines).encode()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
