"""Metrics as an OpenTelemetry collector gets them."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from edgekit.device.runtime.exposition import Family
from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles.otlp import MetricsExporter, metrics_request
from tests.support.patience import until
from tests.support.profile_servers import serving

FAMILIES = [
    Family("edgekit_boards_enrolled", "gauge", "Boards.", (("", {}, 5),)),
    Family("edgekit_board_temperature_celsius", "gauge", "Heat.", (("", {"board": "x"}, 81.5),)),
    Family("edgekit_batches_total", "counter", "Batches.", (("", {"board": "x"}, 2**60),)),
    Family(
        "edgekit_inference_seconds",
        "summary",
        "Time.",
        (
            ("", {"board": "x", "model": "m", "quantile": "0.5"}, 0.002),
            ("", {"board": "x", "model": "m", "quantile": "1"}, 0.009),
            ("_count", {"board": "x", "model": "m"}, 7),
            ("_count", {"board": "y", "model": "m"}, 8),
        ),
    ),
    Family("edgekit_board_throttled", "gauge", "Nobody said.", ()),
]


def test_a_request_has_all_metrics_in_its_forms() -> None:
    (resource,) = json.loads(metrics_request(FAMILIES, 10.0, 11.5))["resourceMetrics"]
    assert resource["resource"]["attributes"][0]["value"] == {"stringValue": "edgekit"}
    boards, heat, batches, times = resource["scopeMetrics"][0]["metrics"]
    span = {"startTimeUnixNano": "10000000000", "timeUnixNano": "11500000000"}
    x = {"key": "board", "value": {"stringValue": "x"}}
    assert boards["gauge"]["dataPoints"] == [{"attributes": [], **span, "asInt": "5"}]
    assert heat["gauge"]["dataPoints"] == [{"attributes": [x], **span, "asDouble": 81.5}]
    assert (heat["unit"], times["unit"], boards["unit"]) == ("Cel", "s", "")
    assert batches["sum"] == {
        "dataPoints": [{"attributes": [x], **span, "asInt": str(2**60)}],
        "aggregationTemporality": 2,
        "isMonotonic": True,
    }
    one, other = times["summary"]["dataPoints"]
    assert one["quantileValues"] == [
        {"quantile": 0.5, "value": 0.002},
        {"quantile": 1.0, "value": 0.009},
    ]
    assert (one["count"], other["count"], other["quantileValues"]) == ("7", "8", [])


def test_a_request_is_one_of_the_official_definitions() -> None:
    """Protobuf's reader refuses fields that OTLP lacks, and values of other types."""
    body = metrics_request(FAMILIES, 10.0, 11.5)
    request = json_format.Parse(body, ExportMetricsServiceRequest())
    boards, heat, batches, times = request.resource_metrics[0].scope_metrics[0].metrics
    assert boards.gauge.data_points[0].as_int == 5
    assert heat.gauge.data_points[0].as_double == 81.5
    assert batches.sum.is_monotonic and batches.sum.data_points[0].as_int == 2**60
    assert [q.value for q in times.summary.data_points[0].quantile_values] == [0.002, 0.009]
    assert {m.WhichOneof("data") for m in (boards, batches, times)} == {"gauge", "sum", "summary"}
    with pytest.raises(json_format.ParseError):
        json_format.Parse(body.replace(b"asInt", b"asInteger"), ExportMetricsServiceRequest())


class _Collector(BaseHTTPRequestHandler):
    """Keeps what it gets; answers with the server's `status`."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {key.lower(): value for key, value in self.headers.items()}
        assert isinstance(self.server, _Collectors)
        self.server.got.append((self.path, headers, json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class _Collectors(ThreadingHTTPServer):
    """Keeps requests in `got`, and answers with `status`."""

    def __init__(self, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Collector)
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.status = status
        self.close = self.server_close


def test_states_are_sent_again_and_again_and_at_the_end() -> None:
    with serving(_Collectors()) as collector:
        url = f"http://127.0.0.1:{collector.server_port}/"
        with MetricsExporter(url, "api-key=a%20b, x=y", lambda: FAMILIES, 0.01):
            until(lambda: len(collector.got) > 2)
        count = len(collector.got)
        path, headers, _ = collector.got[-1]
        assert (path, headers["content-type"]) == ("/v1/metrics", "application/json")
        assert (headers["api-key"], headers["x"]) == ("a b", "y")
        with MetricsExporter(f"{url}v1/metrics", "", lambda: FAMILIES):
            pass
        assert [path for path, _, _ in collector.got[count:]] == ["/v1/metrics"]


def test_a_collector_that_refuses_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with serving(_Collectors(503)) as collector:
        url = f"http://127.0.0.1:{collector.server_port}"
        with MetricsExporter(url, "", lambda: FAMILIES, 0.01):
            until(lambda: len(collector.got) > 2)
            collector.status = 200
            until(lambda: len(collector.got) > 5)
    said = [record.message for record in caplog.records]
    assert len(said) == 1 and "gets nothing: HTTP Error 503" in said[0]


@pytest.mark.parametrize("url", ["collector:4318", "ftp://x", "http://", "http://x/?a=b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="expected a collector's address such as http://"):
        MetricsExporter(url, "", lambda: FAMILIES)
    with pytest.raises(InputError, match="expected key=value,key=value, found 'key'"):
        MetricsExporter("http://x", "a=b,key", lambda: FAMILIES)
