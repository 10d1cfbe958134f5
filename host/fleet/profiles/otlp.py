"""Sends the metrics of /metrics to an OpenTelemetry collector: OTLP 1.x over HTTP, in JSON.

Source: the OTLP specification, https://opentelemetry.io/docs/specs/otlp/ (fields in lowerCamelCase,
64-bit integers as strings, POST to /v1/metrics).
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from edgekit.device.runtime.exposition import Family, Labels, Number
from edgekit.device.version import VERSION
from edgekit.host.errors import EdgekitError, InputError

_log = logging.getLogger(__name__)

_PATH = "/v1/metrics"
_EVERY_SECONDS = 60.0
_ANSWER_SECONDS = 10.0
_CUMULATIVE = 2  # AGGREGATION_TEMPORALITY_CUMULATIVE
_UNITS = (("_seconds", "s"), ("_celsius", "Cel"))


def metrics_request(families: Iterable[Family], began: float, now: float) -> bytes:
    """The body of a request; counters count from `began`. Times are seconds since 1970. Gauges and
    counters become gauges and sums, summaries keep their quantiles."""
    span = {"startTimeUnixNano": _nanoseconds(began), "timeUnixNano": _nanoseconds(now)}
    metrics = [_metric(family, span) for family in families if family.samples]
    resource = {"attributes": _attributes({"service.name": "edgekit", "service.version": VERSION})}
    scope = {"scope": {"name": "edgekit.fleet", "version": VERSION}, "metrics": metrics}
    return json.dumps(
        {"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}
    ).encode()


class MetricsExporter:
    """Sends metrics to `endpoint` (http://collector:4318) every so many seconds while it is
    entered, and once at the end.

    `headers` are `key=value,key=value`, as OTEL_EXPORTER_OTLP_HEADERS has them. A collector that is
    away is logged once, and gets the next state. InputError if a setting is none.
    """

    def __init__(
        self,
        endpoint: str,
        headers: str,
        families: Callable[[], Iterable[Family]],
        every: float = _EVERY_SECONDS,
    ) -> None:
        self._url = _metrics_url(endpoint)
        self._headers = {**_parse_headers(headers), "Content-Type": "application/json"}
        self._families, self._every, self._began = families, every, time.time()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="otlp", daemon=True)
        self._is_away = False

    def __enter__(self) -> MetricsExporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.wait(self._every):
            self._send()
        self._send()

    def _send(self) -> None:
        try:
            body = metrics_request(self._families(), self._began, time.time())
            request = urllib.request.Request(self._url, body, self._headers, method="POST")
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS):
                pass
        except (EdgekitError, OSError, http.client.HTTPException, ValueError) as error:
            if not self._is_away:
                _log.error("metrics: %s gets nothing: %s", self._url, error)
            self._is_away = True
        else:
            self._is_away = False


def _metrics_url(endpoint: str) -> str:
    found = urllib.parse.urlsplit(endpoint)
    if found.scheme not in ("http", "https") or not found.hostname or found.query:
        raise InputError(
            f"--otlp: expected a collector's address such as http://localhost:4318, found "
            f"'{endpoint}'"
        )
    return endpoint.rstrip("/").removesuffix(_PATH) + _PATH


def _parse_headers(text: str) -> dict[str, str]:
    """Parses `key=value,key=value`, with values in percent-encoding."""
    pairs = [one.partition("=") for one in text.split(",") if one.strip()]
    if bad := [key for key, equals, _ in pairs if not equals or not key.strip().isascii()]:
        raise InputError(
            f"OTEL_EXPORTER_OTLP_HEADERS: expected key=value,key=value, found '{bad[0]}'"
        )
    return {key.strip(): urllib.parse.unquote(value.strip()) for key, _, value in pairs}


def _metric(family: Family, span: Mapping[str, str]) -> dict[str, Any]:
    unit = next((unit for suffix, unit in _UNITS if family.name.endswith(suffix)), "")
    about = {"name": family.name, "description": family.about, "unit": unit}
    if family.kind == "summary":
        return {**about, "summary": {"dataPoints": _summary_points(family, span)}}
    points = [_point(labels, value, span) for _, labels, value in family.samples]
    if family.kind == "counter":
        kept = {"aggregationTemporality": _CUMULATIVE, "isMonotonic": True}
        return {**about, "sum": {"dataPoints": points, **kept}}
    return {**about, "gauge": {"dataPoints": points}}


def _point(labels: Labels, value: Number, span: Mapping[str, str]) -> dict[str, Any]:
    kept = {"asInt": str(value)} if isinstance(value, int) else {"asDouble": value}
    return {"attributes": _attributes(labels), **span, **kept}


def _summary_points(family: Family, span: Mapping[str, str]) -> list[dict[str, Any]]:
    """A point for all samples whose labels differ only in their quantile."""
    points: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for suffix, labels, value in family.samples:
        own = {name: text for name, text in labels.items() if name != "quantile"}
        point = points.setdefault(
            tuple(own.items()), {"attributes": _attributes(own), **span, "quantileValues": []}
        )
        if suffix == "_count":
            point["count"] = str(value)
        else:
            quantile = {"quantile": float(labels["quantile"]), "value": value}
            point["quantileValues"].append(quantile)
    return list(points.values())


def _attributes(labels: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": text}} for name, text in labels.items()]


def _nanoseconds(seconds: float) -> str:
    return str(int(seconds * 1e9))
