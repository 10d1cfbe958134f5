"""Boards fetch their releases: signed metadata, resumed downloads, the states of a deploy."""

from __future__ import annotations

import http.client
import itertools
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.push import (
    Bandwidth,
    LaterError,
    connect,
)
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.agent.trusted import TrustedMetadata
from edgekit.device.runtime.errors import (
    DeviceError,
    IncompatibleError,
    InputError,
    RolledBackError,
    TransferError,
)
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, sign_bundle, signing_key
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.errors import InputError as HostInputError
from edgekit.host.fleet.updates import OwnerKeys, ReleaseFolder
from tests.support.fetching import BEGIN, NAME, Fetching, fetching, rewrite
from tests.support.patience import AMPLE
from tests.support.proxy import Fault, running_proxy

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]
WEEK = 7 * 86400


class FullStore(Store):
    """On a disk that is nearly full."""

    def free_bytes(self) -> int:
        return 1000


def test_a_board_fetches_what_it_is_offered_and_reports(place: Fetching, tiny: TinyBundle) -> None:
    assert place.poll() == []
    rollout = place.offer(tiny())
    (ended,) = place.poll()
    assert (ended.end, ended.rollout, ended.current) == ("committed", rollout, tiny().manifest.id)
    assert place.current == tiny().manifest.id
    report = place.folder.reports(NAME)[""]
    assert (report.end, report.release) == ("committed", tiny().manifest.id)
    assert place.poll() == []
    assert not list((place.store.root / "fetch").glob("files/*"))


def test_a_board_fetches_by_its_own_program(
    tmp_path: Path, board_root: Path, tiny: TinyBundle
) -> None:
    with fetching(tmp_path, board_root, time.time()) as place:
        place.offer(tiny())
        answer = Device(LocalTransport(board_root, NAME)).call("fetch-releases", deadline=AMPLE)
    assert [one["end"] for one in answer["releases"]] == ["committed"]


def test_only_missing_files_are_sent(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(tiny())
    place.poll()
    with running_proxy("127.0.0.1", place.home.port) as proxy:
        place.offer(tiny(counter=1))  # differs in the manifest only
        place.poll(proxy.port)
        assert place.current == tiny(counter=1).manifest.id
        assert proxy.down < 60_000 < sum(len(data) for data in tiny().files.values())


def test_offers_of_other_boards_are_left_alone(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(tiny(), boards=["y"])
    assert place.poll() == []
    assert place.current is None


def test_a_cut_download_resumes(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(tiny())
    place.forget_runtime()
    size = sum(len(data) for data in tiny().files.values())
    with running_proxy("127.0.0.1", place.home.port) as proxy:
        for _ in range(2):
            proxy.faults[:] = [Fault(size // 3, "down")]
            with pytest.raises(LaterError, match="expected to fetch releases"):
                place.poll(proxy.port)
            assert place.current is None
        before = proxy.down
        # A cut connection loses what the system had received for the program.
        kept = sum(p.stat().st_size for p in (place.store.root / "fetch/files").iterdir())
        place.poll(proxy.port)
        assert proxy.down - before < size - kept + 50_000  # the rest, and metadata
    assert place.current == tiny().manifest.id


def test_a_full_disk_loses_nothing(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(tiny())
    place.poll()
    place.offer(bigger := tiny("TINY_STATE", counter=1))
    files = place.store.root / "fetch" / "files"
    files.mkdir()
    for entry in bigger.manifest.files:
        (files / entry.sha256).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        place.poll()
    assert (place.current, files.exists()) == (tiny().manifest.id, False)
    assert place.folder.reports(NAME)[""].end == "failed"
    place.poll()
    assert place.current == bigger.manifest.id


def test_a_board_without_room_downloads_nothing(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(tiny())
    place.store = FullStore(place.store.root)
    with pytest.raises(IncompatibleError, match=r"expected \d+ bytes of free disk, found 1000"):
        place.poll()
    files = list((place.store.root / "fetch" / "files").iterdir())
    assert sum(file.stat().st_size for file in files) < 50_000  # the manifest


def test_the_rate_is_bounded(place: Fetching, tiny: TinyBundle) -> None:
    slept: list[float] = []
    place.offer(tiny())
    place.forget_runtime()
    place.poll(bandwidth=Bandwidth(8_000_000, clock=lambda: 0.0, sleep=slept.append))
    size = sum(len(data) for data in tiny().files.values())
    assert size / 1e6 < max(slept) < 1.2 * size / 1e6 + 0.2  # of a clock that stands still


def test_a_connection_that_was_closed_is_not_used_again(place: Fetching) -> None:
    """Python's would connect again, and send the token to whoever answers."""
    connection, _ = connect(place.home)
    connection.request("GET", "/", headers={"Connection": "close"})
    connection.getresponse().read()
    with pytest.raises(http.client.NotConnected):
        connection.request("GET", "/", headers={"Authorization": f"Bearer {place.home.token}"})


def test_a_file_that_changed_on_the_server_is_refused(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(tiny())
    for path in (place.folder.path / "files").iterdir():
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    with pytest.raises(TransferError, match=r"expected \d+ bytes with that SHA-256, found"):
        place.poll()
    assert place.current is None


def test_an_unhealthy_release_goes_back_and_is_not_fetched_again(
    place: Fetching, tiny: TinyBundle
) -> None:
    place.offer(tiny())
    place.poll()
    place.offer(bad := tiny("TINY_WRONG", counter=1))
    with pytest.raises(RolledBackError, match="was rolled back"):
        place.poll()
    assert place.current == tiny().manifest.id
    report = place.folder.reports(NAME)[""]
    assert (report.end, report.release, report.exit_code) == ("rolled back", bad.manifest.id, 7)
    assert place.poll() == []
    place.offer(bad)  # somebody wants it tried again
    with pytest.raises(RolledBackError):
        place.poll()


def test_a_lower_counter_is_refused_and_reported(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(tiny(counter=5))
    place.poll()
    place.offer(tiny(counter=4))
    with pytest.raises(IncompatibleError, match="expected counter 5 or more, found 4"):
        place.poll()
    assert place.folder.reports(NAME)[""].end == "failed"
    assert place.current == tiny(counter=5).manifest.id


def test_an_offer_to_go_back_is_followed_once(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(tiny())
    place.poll()
    place.offer(tiny(counter=1))
    place.poll()
    place.offer(tiny(counter=1), back=True)
    (ended,) = place.poll()
    assert (ended.end, place.current) == ("back", tiny().manifest.id)
    assert place.poll() == []


def test_a_user_who_rolls_back_is_not_overruled(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(tiny())
    place.poll()
    place.offer(tiny(counter=1))
    place.poll()
    Device(LocalTransport(place.store.root, NAME)).rollback()
    (ended,) = place.poll()
    assert (ended.end, place.current) == ("rolled back", tiny().manifest.id)
    assert place.poll() == []


# A stolen key of the server, and what else may be wrong with metadata


class _Thief(ReleaseFolder):
    """The program of someone who has the server's folder, but none of the owner's keys."""

    def _check_owner(self, owner: OwnerKeys) -> None:
        del owner

    def _targets(self, owner: OwnerKeys) -> dict[str, Any]:
        del owner
        return {}


def test_the_servers_key_cannot_offer_a_release(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(tiny())
    place.poll()
    thief = OwnerKeys(place.owner.root, (signing_key(place.folder.path / "online"),))
    with pytest.raises(HostInputError, match="expected releases to be offered with the key of"):
        place.folder.offer(thief, [tiny(counter=1)], [])
    _Thief(place.folder.path, place.clock).offer(thief, [tiny(counter=1)], [])
    with pytest.raises(TransferError, match="targets metadata: expected signatures by 1 of its"):
        place.poll()
    assert place.current == tiny().manifest.id


def test_a_release_by_an_unknown_key_is_refused(
    place: Fetching, tiny: TinyBundle, tmp_path: Path
) -> None:
    stranger = sign_bundle(replace(tiny(), signature=b""), signing_key(tmp_path / "stranger"))
    place.offer(stranger)
    with pytest.raises(TransferError, match="expected a signature of the manifest by"):
        place.poll()
    assert place.current is None


def test_replayed_metadata_is_refused(place: Fetching, tiny: TinyBundle, tmp_path: Path) -> None:
    place.offer(tiny())
    place.poll()
    old = tmp_path / "old"
    shutil.copytree(place.folder.path / "metadata", old)
    place.offer(tiny(counter=1))
    place.poll()
    shutil.rmtree(place.folder.path / "metadata")
    shutil.copytree(old, place.folder.path / "metadata")
    with pytest.raises(TransferError, match=r"timestamp metadata: expected version \d+ or newer"):
        place.poll()
    assert place.current == tiny(counter=1).manifest.id


def test_mixed_up_metadata_is_refused(place: Fetching, tiny: TinyBundle) -> None:
    place.folder.renew()
    place.offer(tiny())
    place.folder.renew()
    metadata = place.folder.path / "metadata"
    newest = max(int(p.name.split(".")[0]) for p in metadata.glob("*.targets.json"))
    shutil.copy(metadata / f"{newest - 1}.targets.json", metadata / f"{newest}.targets.json")
    with pytest.raises(TransferError, match=r"targets metadata: expected \d+ bytes with"):
        place.poll()


def test_missing_metadata_is_signed_anew_or_later(
    place: Fetching, tiny: TinyBundle, caplog: pytest.LogCaptureFixture
) -> None:
    place.offer(tiny())
    metadata = place.folder.path / "metadata"
    for role in ("timestamp", "snapshot"):  # the server's own roles
        for file in metadata.glob(f"*{role}.json"):
            file.unlink()
    assert place.poll()
    place.offer(tiny(counter=1))
    for file in metadata.glob("*targets.json"):
        file.unlink()
    with pytest.raises(LaterError, match="found 503 cannot sign now"):
        place.poll()
    assert "found: ValueError('no targets'); restore the folder from a backup" in caplog.text
    assert place.current == tiny().manifest.id


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
def test_metadata_that_a_server_withholds_is_named(place: Fetching, role: str) -> None:
    metadata = place.folder.path / "metadata"

    def download(name: str, most: int) -> bytes | None:
        file = metadata / name
        return None if role in name or not file.exists() else file.read_bytes()

    place.poll()  # the server signs its own roles
    folder = place.store.root / "withheld"
    folder.mkdir()
    (folder / "root.json").write_bytes((metadata / "1.root.json").read_bytes())
    with pytest.raises(TransferError, match=rf"{role}.json: expected it on the server, found none"):
        TrustedMetadata(folder, place.clock).update(download)


@pytest.mark.parametrize("clock", [0.0, BEGIN], ids=["1970", "right"])
def test_expired_metadata_is_refused_whatever_the_clock_says(
    place: Fetching, tiny: TinyBundle, clock: float
) -> None:
    place.offer(tiny())
    place.poll(clock=lambda: clock)
    assert place.current == tiny().manifest.id
    place.clock.now += WEEK + 1
    place.offer(tiny(counter=1))
    assert place.poll(clock=lambda: clock)
    rewrite(
        place,
        "timestamp.json",
        lambda signed: signed.update(version=99, expires="2027-01-16T00:00:00Z"),
    )
    with pytest.raises(
        TransferError, match="timestamp metadata: expected it to be valid at 2027-01"
    ):
        place.poll(clock=lambda: clock)
    assert place.current == tiny(counter=1).manifest.id


def test_a_clock_far_ahead_changes_nothing(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(tiny())
    with pytest.raises(TransferError, match=r"root metadata: .* expired at .* this board's clock"):
        place.poll(clock=lambda: BEGIN + 100 * 365 * 86400)
    place.poll()
    assert place.current == tiny().manifest.id


def test_damaged_metadata_is_one_line(place: Fetching) -> None:
    place.folder.renew()
    odd_text = (place.folder.path / "metadata" / "1.root.json").read_bytes()
    odd_text = odd_text.replace(b'"_type"', b'"odd":"\\ud800","_type"', 1)
    damages = (b"{}", b"[]", b"\xff", b'{"signed": 1, "signatures": []}', b"[" * 10_000, odd_text)
    names = ("1.snapshot.json", "2.root.json")  # the board asks whether there is a second root
    for name, damage in ((names[0], b""), *itertools.product(names, damages)):
        path = place.folder.path / "metadata" / name
        whole = path.read_bytes() if path.exists() else None
        path.write_bytes(damage)
        _poll_fails_in_one_line(place)
        if whole is None:
            path.unlink()
        else:
            path.write_bytes(whole)
    rewrite(place, "timestamp.json", lambda signed: signed.update(meta=json.loads("{}")))
    _poll_fails_in_one_line(place)


def _poll_fails_in_one_line(place: Fetching) -> None:
    with pytest.raises(DeviceError) as error:
        place.poll()
    assert "\n" not in str(error.value)


def test_the_token_of_another_board_is_refused(place: Fetching) -> None:
    other = place.server.tokens.issue("y")
    place.home = replace(place.home, token=other)
    with pytest.raises(InputError, match="403 the token of another board"):
        place.poll()


def test_a_damaged_report_is_refused(place: Fetching) -> None:
    for wrong in (b"", b"{}", b"[" * 5000, b'{"end": "committed"}'):
        with pytest.raises(HostInputError, match="expected a report about a release"):
            place.folder.take(NAME, wrong)
    assert place.folder.reports(NAME) == {}
