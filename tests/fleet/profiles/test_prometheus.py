"""A real Prometheus scrapes the fleet's server and an application, as docs/fleets.md has it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.profiles.test_live import live
from tests.fleet.profiles.test_metrics import application, hot_batch
from tests.support.patience import until
from tests.support.profile_servers import post, serving

_DOCS = Path(__file__).parents[3] / "docs"
_NO_SENSOR = "edgekit_application_temperature_celsius"  # of boards that have a sensor

pytestmark = [
    pytest.mark.tools,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("prometheus"), reason="needs prometheus"),
]


class _ApplicationPage(BaseHTTPRequestHandler):
    metrics = application()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", self.metrics.content_type)
        self.end_headers()
        self.wfile.write(self.metrics.text())

    def log_message(self, *_: object) -> None:
        pass


class _PageServer(ThreadingHTTPServer):
    close = ThreadingHTTPServer.server_close


@contextmanager
def application_page() -> Iterator[int]:
    """The port of an application's metrics."""
    with serving(_PageServer(("127.0.0.1", 0), _ApplicationPage)) as server:
        yield server.server_port


def configuration(token: Path, fleet: int, application: int) -> str:
    """What the page on fleets says, for these ports; and the alerts of the same folder."""
    (said,) = re.findall(
        r"```yaml\n(scrape_configs:.*?)```", (_DOCS / "fleets.md").read_text(), re.S
    )
    said = re.sub(r"credentials_file: [^ ]+", f"credentials_file: {token}", said)
    said = said.replace("192.168.1.10:8470", f"127.0.0.1:{fleet}")
    return f"""
global: {{ scrape_interval: 200ms, evaluation_interval: 200ms }}
rule_files: [{_DOCS / "monitoring" / "alerts.yml"}]
{said}
  - job_name: application
    static_configs: [{{ targets: ["127.0.0.1:{application}"] }}]
"""


@contextmanager
def prometheus(folder: Path, text: str) -> Iterator[Callable[[str], Any]]:
    """A server with this configuration; asks its API."""
    (folder / "prometheus.yml").write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"http://{address}/api/v1/{path}") as answer:
            return json.load(answer)["data"]

    command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    with subprocess.Popen(
        [*command, f"--web.listen-address={address}"], cwd=folder, stderr=subprocess.DEVNULL
    ) as server:
        try:
            yield ask
        finally:
            server.terminate()


def test_prometheus_has_what_the_dashboard_and_the_alerts_ask_for(tmp_path: Path) -> None:
    panels = json.loads((_DOCS / "monitoring" / "grafana.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    queries = [one.replace("$board", ".*").replace("$model", ".*") for one in asked]
    with live(tmp_path) as (server, _, _), application_page() as page:
        board = server.tokens.issue("hot")
        assert post(server.port, "hot", board, zlib.compress(hot_batch(1, dropped=2)))
        token = server.host_pages.scrape_token.path
        with prometheus(tmp_path, configuration(token, server.port, page)) as ask:

            def empty() -> list[str]:
                """Queries without an answer; a rate has one after two scrapes."""
                words = ((one, urllib.parse.quote(one)) for one in queries)
                try:
                    found = [(one, ask(f"query?query={word}")["result"]) for one, word in words]
                except OSError:  # not up yet
                    return queries
                return [one for one, result in found if not result]

            until(lambda: set(empty()) <= {_NO_SENSOR})
            until(lambda: len(ask("alerts")["alerts"]) > 2)
            labels = [alert["labels"] for alert in ask("alerts")["alerts"]]
            alerts = {(one["alertname"], one.get("board")) for one in labels}
            assert {
                ("BoardHot", "hot"),
                ("BoardThrottled", "hot"),
                ("BoardsFailed", None),
            } <= alerts
            (rules,) = ask("rules")["groups"]
            assert {rule["health"] for rule in rules["rules"]} == {"ok"}
