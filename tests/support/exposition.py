"""A strict reader of Prometheus' exposition format 0.0.4, from its description."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_COMMENT = re.compile(rf"# (HELP|TYPE) ({_NAME}) (.+)")
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
_SUFFIXES = {
    "counter": ("",),
    "gauge": ("",),
    "summary": ("", "_sum", "_count"),
    "histogram": ("_bucket", "_sum", "_count"),
}
Labels = frozenset[tuple[str, str]]


@dataclass
class Metric:
    """A metric; `samples` by full name and labels."""

    kind: str = ""
    about: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]


def parse(text: bytes) -> dict[str, Metric]:
    """The metrics of a page; AssertionError at the first thing the format does not allow."""
    assert text.endswith(b"\n")
    found: dict[str, Metric] = {}
    newest = ""
    for line in text.decode("utf-8").removesuffix("\n").split("\n"):
        if comment := _COMMENT.fullmatch(line):
            newest = comment[2]
            if comment[1] == "HELP":
                assert newest not in found, line
                found[newest] = Metric(about=comment[3])
            else:
                assert not found[newest].kind, line
                assert not found[newest].samples, line
                assert comment[3] in _SUFFIXES, line
                found[newest].kind = comment[3]
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample is not None, line
        metric = found[newest]
        assert sample[1] in [newest + suffix for suffix in _SUFFIXES[metric.kind]], line
        key = sample[1], _labels(sample[2] or "")
        assert key not in metric.samples, line
        metric.samples[key] = float(sample[3])
        assert not math.isnan(metric.samples[key]), line
        assert metric.kind != "counter" or newest.endswith("_total"), line
    for name, metric in found.items():
        assert metric.samples, name
        if metric.kind == "histogram":
            _check_buckets(name, metric)
    return found


def _labels(text: str) -> Labels:
    pairs, at = [], 0
    while at < len(text):
        found = _LABEL.match(text, at)
        assert found is not None, text
        value = re.sub(r"\\(.)", lambda one: "\n" if one[1] == "n" else one[1], found[2])
        pairs.append((found[1], value))
        at = found.end()
    assert len({name for name, _ in pairs}) == len(pairs), text
    return frozenset(pairs)


def _check_buckets(name: str, metric: Metric) -> None:
    """Buckets grow, and the last one has all."""
    rows: dict[Labels, list[tuple[float, float]]] = {}
    for (full, labels), value in metric.samples.items():
        if full == f"{name}_bucket":
            bound = float(dict(labels)["le"])
            rest = frozenset(pair for pair in labels if pair[0] != "le")
            rows.setdefault(rest, []).append((bound, value))
    for rest, buckets in rows.items():
        assert buckets == sorted(buckets), name
        assert [count for _, count in buckets] == sorted(count for _, count in buckets), name
        assert buckets[-1] == (math.inf, metric.samples[f"{name}_count", rest]), name
        assert (f"{name}_sum", rest) in metric.samples, name
