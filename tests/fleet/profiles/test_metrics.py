"""/metrics of the profile server and of an application, in Prometheus' format."""

from __future__ import annotations

import json
import re
import stat
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgekit.device.runtime.agent.batch import batch_bytes
from edgekit.device.runtime.application import DeviceError, Metrics
from edgekit.device.runtime.exposition import CONTENT_TYPE, exposition
from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles import ProfileServer, ProfileStore
from edgekit.host.fleet.profiles.batch import Batch, decode_batch
from edgekit.host.fleet.profiles.metrics import FleetMetrics, fleet_families
from edgekit.host.fleet.profiles.tokens import FileToken
from tests.support.exposition import Metric, parse
from tests.support.profile_batches import SPOOL, batch
from tests.support.profile_servers import ask, post, running_server

_DOCS = Path(__file__).parents[3] / "docs" / "monitoring"
_ROLLOUTS = [("20261127-120000-abcd", 'a "quoted" model', {"done": 3, "failed": 1})]


def hot_batch(sequence: int, dropped: int = 0, **subject: str) -> bytes:
    """A hot board's batch, as it sends it."""
    made = batch(7)
    made = replace(
        made,
        uuid=f"{sequence:032x}",
        subject=replace(made.subject, **subject),
        whole=made.whole._replace(
            samples=4, median_ns=2_000_000, p90_ns=3_000_000, max_ns=9_000_000
        ),
        environment=replace(made.environment, temperature_c=81.5, throttled=True),
    )
    return batch_bytes(made, SPOOL, sequence, dropped, 0)


def arrived(sequence: int, dropped: int = 0, **subject: str) -> Batch:
    """A hot board's batch, as the server decodes it."""
    return decode_batch(hot_batch(sequence, dropped, **subject).partition(b"\n")[2])


def page_of(fleet: FleetMetrics) -> dict[str, Metric]:
    return parse(exposition(fleet_families(fleet, 5, _ROLLOUTS)))


def application() -> Metrics:
    """The metrics of an application that has run three inferences, one of which failed."""
    metrics = Metrics(SimpleNamespace(name="tiny", release="0" * 16))
    for _ in range(2):
        with metrics.inference():
            pass
    with pytest.raises(DeviceError), metrics.inference():
        raise DeviceError("no")
    return metrics


@pytest.fixture
def fleet() -> FleetMetrics:
    fleet = FleetMetrics(lambda: 1000.5)
    fleet.take("x", [arrived(0), arrived(1, dropped=2)], refused=1)
    fleet.take("y", [arrived(0)])
    return fleet


def test_the_page_has_what_boards_sent(fleet: FleetMetrics) -> None:
    found = page_of(fleet)
    assert found["edgekit_boards_enrolled"].value("edgekit_boards_enrolled") == 5
    of = {"board": "x", "model": "tiny"}
    times = found["edgekit_inference_seconds"]
    for quantile, seconds in (("0.5", 0.002), ("0.9", 0.003), ("1", 0.009)):
        labels = {**of, "release": "0" * 16, "quantile": quantile}
        assert times.value("edgekit_inference_seconds", **labels) == seconds
    assert times.value("edgekit_inference_seconds_count", **of, release="0" * 16) == 8
    for name, value in (
        ("board_last_seen_timestamp_seconds", 1000.5),
        ("batches_total", 2),
        ("batches_refused_total", 1),
        ("batches_dropped_total", 2),
        ("board_temperature_celsius", 81.5),
        ("board_throttled", 1),
    ):
        assert found[f"edgekit_{name}"].value(f"edgekit_{name}", board="x") == value
    assert found["edgekit_inferences_total"].value("edgekit_inferences_total", **of) == 20
    running = {"model": "tiny", "release": "0" * 16}
    assert found["edgekit_release_boards"].value("edgekit_release_boards", **running) == 2
    rollout = {"rollout": _ROLLOUTS[0][0], "model": _ROLLOUTS[0][1], "state": "failed"}
    assert found["edgekit_rollout_boards"].value("edgekit_rollout_boards", **rollout) == 1


def test_what_arrives_again_is_not_counted_again(fleet: FleetMetrics) -> None:
    fleet.take("x", [arrived(0), arrived(1), arrived(2)])
    found = page_of(fleet)["edgekit_batches_total"]
    assert found.value("edgekit_batches_total", board="x") == 3


def test_a_board_that_names_many_models_takes_little_space() -> None:
    fleet = FleetMetrics(lambda: 0.0)
    fleet.take("x", [arrived(i, model=f'm"\\{i}') for i in range(100)])
    found = page_of(fleet)["edgekit_inferences_total"]
    assert {dict(labels)["model"] for _, labels in found.samples} == {
        f'm"\\{i}' for i in range(84, 100)
    }


def test_an_application_counts_its_inferences() -> None:
    found = parse(application().text())
    times = found["edgekit_application_inference_seconds"]
    assert times.kind == "histogram"
    assert times.value("edgekit_application_inference_seconds_count", model="tiny") == 2
    failures = found["edgekit_application_failures_total"]
    assert failures.value("edgekit_application_failures_total", model="tiny") == 1


def test_the_dashboard_and_the_alerts_name_only_metrics_that_exist(fleet: FleetMetrics) -> None:
    exported = {full for metric in page_of(fleet).values() for full, _ in metric.samples}
    exported |= {full for one in parse(application().text()).values() for full, _ in one.samples}
    exported.add("edgekit_application_temperature_celsius")  # of boards that have a sensor
    dashboard = json.loads((_DOCS / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) > 10
    alerts = (_DOCS / "alerts.yml").read_text()
    named = set(re.findall(r"\bedgekit_\w+", "\n".join([*queries, alerts])))
    assert len(named) > 10
    assert named <= exported
    boxes = [panel["gridPos"] for panel in dashboard["panels"]]
    assert len({(box["x"], box["y"]) for box in boxes}) == len(boxes)


def test_prometheus_own_reader_reads_the_pages(fleet: FleetMetrics) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    for text in (exposition(fleet_families(fleet, 5, _ROLLOUTS)), application().text()):
        ours = parse(text)
        theirs = list(parser.text_string_to_metric_families(text.decode()))
        samples = {
            (one.name, frozenset(one.labels.items())): one.value
            for family in theirs
            for one in family.samples
        }
        assert samples == {k: v for metric in ours.values() for k, v in metric.samples.items()}


def test_a_token_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    token = FileToken(tmp_path / "store" / "metrics.token")
    assert stat.S_IMODE(token.path.stat().st_mode) == 0o600
    assert FileToken(tmp_path / "store" / "metrics.token").matches(token.path.read_text().strip())
    token.path.write_bytes(b"\n")
    with pytest.raises(InputError, match="expected a token of 64 characters, found 0"):
        FileToken(tmp_path / "store" / "metrics.token")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProfileServer]:
    pytest.importorskip("pyarrow")
    with running_server(ProfileStore(tmp_path / "store")) as found:
        yield found


@pytest.mark.slow
def test_only_who_has_the_token_reads_the_metrics(server: ProfileServer) -> None:
    board = server.tokens.issue("x")
    body = zlib.compress(batch_bytes(batch(1), SPOOL, 1, 0, 0))
    assert post(server.port, "x", board, body)
    for wrong in (board, "0" * 64, ""):
        assert ask(server.port, "/metrics", wrong)[0] == 401
    token = server.host_pages.scrape_token.path.read_text().strip()
    assert ask(server.port, "/metrics?name[]=edgekit_batches_total", token)[0] == 200
    status, kind, text = ask(server.port, "/metrics", token)
    assert (status, kind) == (200, CONTENT_TYPE)
    found = parse(text)
    assert found["edgekit_batches_total"].value("edgekit_batches_total", board="x") == 1
    assert found["edgekit_boards_enrolled"].value("edgekit_boards_enrolled") == 1
    assert ask(server.port, "/v1/boards/x/profiles", token)[0] == 404
    assert not post(server.port, "x", token, body)
