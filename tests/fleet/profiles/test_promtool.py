"""Prometheus' own checker on the alerts and the pages of metrics."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from edgekit.device.runtime.exposition import exposition
from edgekit.host.fleet.profiles.metrics import FleetMetrics, fleet_families
from tests.fleet.profiles.test_metrics import application, arrived

_DOCS = Path(__file__).parents[3] / "docs" / "monitoring"
_TIMES = "".join(
    f"""
      - series: edgekit_inference_seconds{{board="{board}",model="m",release="{release}",\
quantile="0.5"}}
        values: '{seconds}x600'"""
    for board, release, seconds in [
        ("a", "r", 0.010), ("b", "r", 0.011), ("c", "r", 0.012), ("d", "r", 0.016), ("e", "q", 0.1)
    ]
)  # fmt: skip

pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool"),
]


def promtool(*words: str | Path, page: bytes = b"") -> None:
    done = subprocess.run(["promtool", *words], input=page, capture_output=True)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_alerts_are_rules() -> None:
    promtool("check", "rules", _DOCS / "alerts.yml")


def test_a_board_slower_than_most_of_its_release_raises_an_alert(tmp_path: Path) -> None:
    file = tmp_path / "slow.yml"
    file.write_text(f"""
rule_files: [{_DOCS / "alerts.yml"}]
tests:
  - interval: 1m
    input_series:{_TIMES}
    promql_expr_test:
      - expr: ALERTS{{alertname="BoardSlow",alertstate="firing"}}
        eval_time: 2h
        exp_samples:
          - labels: 'ALERTS{{alertname="BoardSlow",alertstate="firing",severity="warning",\
board="d",model="m",release="r",quantile="0.5"}}'
            value: 1
""")
    promtool("test", "rules", file)


def test_pages_are_metrics() -> None:
    fleet = FleetMetrics(lambda: 1000.5)
    fleet.take("x", [arrived(0), arrived(1, dropped=2)], refused=1)
    rollouts = [("20261127-120000-abcd", 'a "quoted" model', {"done": 3, "failed": 1})]
    for page in (exposition(fleet_families(fleet, 5, rollouts)), application().text()):
        promtool("check", "metrics", page=page)
