"""The fleet's live page over HTTPS, and what its buttons do to rollouts of this host."""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgekit.device.runtime.agent.batch import batch_bytes
from edgekit.host.errors import BusyError, InputError
from edgekit.host.fleet.control import REASON, HostRollouts
from edgekit.host.fleet.journal import Journal, read_rollout, write_plan
from edgekit.host.fleet.profiles import ProfileServer, ProfileStore
from edgekit.host.fleet.profiles.live import EVENTS, RolloutRow, TroubledBoard
from edgekit.host.fleet.rollout import BoardEvent, PlannedBoard, RolloutPlan
from edgekit.host.report.live import live_page
from tests.support.browser import find_browser, running_browser
from tests.support.patience import until
from tests.support.profile_batches import SPOOL, batch
from tests.support.profile_servers import ask, asking, post, running_server

pytest.importorskip("pyarrow")

ID = "20261128-120000-abcd"
HOSTILE = '<img src=x onerror="document.title=1">'


class KeptRollouts:
    """One rollout, whose state actions change."""

    def __init__(self) -> None:
        trouble = [TroubledBoard("b7", "failed", HOSTILE)]
        counts = {"done": 3, "going": 1, "failed": 1, "waiting": 5}
        self.row = RolloutRow(ID, "tiny", "", 1.0, "in progress", "", counts, trouble)
        self.taken_back: list[str] = []

    def newest(self) -> Sequence[RolloutRow]:
        return [self.row]

    def stop(self, rollout: str) -> str:
        if self.row.state == "stopped":
            raise InputError("it is over")
        self.row.state, self.row.reason = "stopped", REASON
        return f"{rollout} is stopped"

    def take_back(self, rollout: str) -> str:
        self.taken_back.append(rollout)
        return "they return"


@contextmanager
def live(tmp_path: Path) -> Iterator[tuple[ProfileServer, KeptRollouts, str]]:
    """A server with the page, a rollout, two boards of which one has sent; and its token."""
    rollouts = KeptRollouts()
    store = ProfileStore(tmp_path / "store")
    with running_server(store, rollouts=rollouts, front=live_page().encode()) as server:
        server.tokens.issue("silent")
        body = zlib.compress(batch_bytes(batch(1), SPOOL, 1, 0, 0))
        assert post(server.port, "x", server.tokens.issue("x"), body)
        token = server.host_pages.operator_token.path.read_text().strip()
        yield server, rollouts, token


def events(lines: Iterator[bytes]) -> Iterator[tuple[str, Any]]:
    """Name and document of each event of a stream."""
    name = ""
    for line in lines:
        key, _, text = line.decode().strip().partition(": ")
        if key == "event":
            name = text
        elif key == "data":
            yield name, json.loads(text)


def test_states_come_as_they_change_and_actions_act(tmp_path: Path) -> None:
    action = f"/v1/fleet/rollouts/{ID}"
    with live(tmp_path) as (server, rollouts, token), asking(server.port, EVENTS, token) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        found = events(iter(stream.readline, b""))
        state = dict([next(found), next(found)])
        assert [one["name"] for one in state["boards"]] == ["silent", "x"]
        silent, sending = state["boards"]
        assert (silent["seen"], silent["models"]) == (0, [])
        assert [one["model"] for one in sending["models"]] == [batch(1).subject.model]
        assert sending["seen"] > 1.7e9
        assert state["rollouts"][0]["state"] == "in progress"

        status, _, said = ask(server.port, f"{action}/stop", token, "POST")
        assert (status, said) == (200, f"{ID} is stopped\n".encode())
        name, changed = next(found)
        assert (name, changed[0]["state"], changed[0]["reason"]) == ("rollouts", "stopped", REASON)
        assert ask(server.port, f"{action}/stop", token, "POST")[::2] == (409, b"it is over\n")
        assert ask(server.port, f"{action}/rollback", token, "POST")[0] == 200
        assert rollouts.taken_back == [ID]


def test_only_who_has_the_token_sees_and_acts(tmp_path: Path) -> None:
    with live(tmp_path) as (server, rollouts, token):
        assert ask(server.port, "/")[0] == 200
        scrape = server.host_pages.scrape_token.path.read_text().strip()
        for path, method in ((EVENTS, "GET"), (f"/v1/fleet/rollouts/{ID}/stop", "POST")):
            for wrong in (scrape, "0" * 64, ""):
                assert ask(server.port, path, wrong, method)[0] == 401
        for path in (f"/v1/fleet/rollouts/{ID}/stop", "/v1/fleet/rollouts/x/stop", "/v1/fleet/"):
            assert ask(server.port, path, token)[0] == 404
        assert ask(server.port, "/v1/fleet/rollouts/..%2f..%2f/stop", token, "POST")[0] == 404
        assert rollouts.row.state == "in progress"


def test_damaged_tokens_end_the_stream_and_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with live(tmp_path) as (server, _, token), asking(server.port, EVENTS, token) as stream:
        found = events(iter(stream.readline, b""))
        assert {next(found)[0], next(found)[0]} == {"boards", "rollouts"}
        server.tokens.path.write_bytes(b"{")
        assert list(found) == []
        scrape = server.host_pages.scrape_token.path.read_text().strip()
        assert ask(server.port, "/metrics", scrape)[0] == 503
    assert "the live page ends: " in caplog.text and "no metrics can be made" in caplog.text


def test_a_few_people_watch_at_once(tmp_path: Path) -> None:
    with live(tmp_path) as (server, _, token), ExitStack() as watching:
        for _ in range(8):
            stream = watching.enter_context(asking(server.port, EVENTS, token))
            assert stream.status == 200
        assert ask(server.port, EVENTS, token)[0] == 503


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RolloutPlan:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    boards = tuple(PlannedBoard(f"b{i}", "k") for i in range(3))
    return RolloutPlan(ID, "asked", "tiny.tflite", boards, {"k": "0" * 16})


def test_an_interrupted_rollout_is_stopped_here(plan: RolloutPlan) -> None:
    folder = write_plan(plan, {})
    rollouts = HostRollouts(())
    assert [one.state for one in rollouts.newest()] == ["interrupted"]
    assert rollouts.stop(ID) == f"{ID} is stopped"
    (row,) = rollouts.newest()
    assert (row.state, row.reason, dict(row.counts)) == ("stopped", REASON, {"waiting": 3})
    with pytest.raises(InputError, match="expected one in progress, found it stopped"):
        rollouts.stop(ID)
    assert read_rollout(folder).progress.ended == "stopped"


def test_the_process_that_carries_a_rollout_out_hears_of_it(plan: RolloutPlan) -> None:
    rollouts = HostRollouts(())
    with closing(Journal(write_plan(plan, {}))) as journal:
        journal.begin(["b0"], True)
        journal.note(BoardEvent("b0", "began"))
        assert rollouts.newest()[0].state == "in progress"
        assert "stops when the boards that it works on are done" in rollouts.stop(ID)
        assert rollouts.newest()[0].state == "stopping"
        with pytest.raises(BusyError, match="stop it"):
            rollouts.take_back(ID)
        journal.note(BoardEvent("b0", "failed", "no room", 1))
        assert journal.progress.stop_wanted == REASON
    (row,) = rollouts.newest()
    assert [(one.name, one.message) for one in row.troubled] == [("b0", "no room")]


@pytest.mark.parametrize(
    ("program", "note"),
    [
        (f"import sys; sys.exit(sys.argv[1:] != ['rollback', '--rollout', '{ID}'])", "returned"),
        ("print('edgekit: b0 sleeps', file=__import__('sys').stderr); exit(3)", "b0 sleeps"),
        ("exit(3)", "the rollback ended with 3"),
    ],
    ids=["good", "said", "silent"],
)
def test_a_rollback_says_how_it_went(plan: RolloutPlan, program: str, note: str) -> None:
    write_plan(plan, {})
    rollouts = HostRollouts((sys.executable, "-c", program))
    rollouts.take_back(ID)
    until(lambda: "return to" not in rollouts.newest()[0].note)
    assert note in rollouts.newest()[0].note


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="needs headless Chromium")
def test_a_person_watches_stops_and_rolls_back(tmp_path: Path) -> None:
    pictures = Path(os.environ.get("EDGEKIT_PICTURES", tmp_path))
    with live(tmp_path) as (server, rollouts, token), running_browser(tmp_path) as browser:
        browser.open(f"https://127.0.0.1:{server.port}/")
        browser.value("document.querySelector('#token').focus()")
        browser.value(f"document.querySelector('#token').value = '{'0' * 64}'")
        browser.press("Enter")
        until(lambda: bool(browser.texts("#refusal")))
        browser.complaints.clear()  # the browser reports each 401
        browser.value(f"document.querySelector('#token').value = '{token}'")
        browser.press("Enter")
        until(lambda: bool(browser.texts("article") and browser.texts("#board-rows tbody tr")))
        assert browser.texts("#board-rows tbody th") == ["silent", "x"]
        assert browser.texts("article li") == [f"b7 failed: {HOSTILE}"]
        browser.picture(pictures / "live.png")
        browser.click("button[data-action=stop]")
        assert browser.texts("button[data-action=stop]") == ["Stop: are you sure?"]
        assert rollouts.row.state == "in progress"
        browser.click("button[data-action=stop]")
        until(lambda: browser.texts("article .state") == ["stopped"])
        until(lambda: browser.texts("#answer") == [f"{ID} is stopped\n"])
        browser.click("button[data-action=rollback]")
        assert browser.texts("button[data-action=rollback]") == ["Roll back: are you sure?"]
        assert rollouts.taken_back == []
        browser.click("button[data-action=rollback]")
        until(lambda: browser.texts("#answer") == ["they return\n"])
        assert rollouts.taken_back == [ID]
        rollouts.row = msgspec.structs.replace(rollouts.row, model=HOSTILE)
        until(lambda: HOSTILE in browser.texts("article h3")[0])
        for width, dark in ((360, True), (1280, False)):
            browser.open(f"https://127.0.0.1:{server.port}/", width=width, dark=dark)
            until(lambda: bool(browser.texts("article") and browser.texts("#board-rows tbody tr")))
            assert browser.value("document.documentElement.scrollWidth") == width
            browser.picture(pictures / f"live-{width}.png")
        assert browser.value("document.title") == "edgekit fleet"
        assert browser.complaints == []
        browser.open("about:blank")
