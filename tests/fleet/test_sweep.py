"""A folder of releases forgets what no board is offered any more, but not too early."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.push import LaterError
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.fleet.updates import Offered, OwnerKeys, ReleaseFolder
from tests.support.fetching import NAME, Clock, Fetching, owner_keys
from tests.support.proxy import Fault, running_proxy

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]
DAY = 86400


class Offering:
    """A folder of releases without a server, whose owner offers bundles to board `x`."""

    def __init__(self, path: Path, owner: OwnerKeys, clock: Clock) -> None:
        self.folder, self.owner, self.clock = ReleaseFolder(path, clock), owner, clock

    def offer(self, bundle: Bundle, *boards: str) -> None:
        offers = [Offered(bundle.manifest.id, "", f"at-{self.clock.now:.0f}", boards)]
        self.folder.offer(self.owner, [bundle], offers if boards else [])
        self.folder.renew()

    def wait(self, days: float) -> None:
        """Time passes, in which boards poll."""
        for _ in range(int(days)):
            self.clock.now += DAY
            self.folder.renew()

    def has(self, bundle: Bundle) -> bool:
        """Whether all of a bundle is there."""
        return not missing(self.folder, bundle)


def missing(folder: ReleaseFolder, bundle: Bundle) -> list[bytes]:
    """What a board that fetches the bundle would not find."""
    contents = (bundle.manifest.to_json(), bundle.signature, *map(bytes, bundle.files.values()))
    return [one for one in contents if folder.file(hashlib.sha256(one).hexdigest()) is None]


@pytest.fixture
def offering(tmp_path: Path) -> Offering:
    found = Offering(tmp_path / "releases", owner_keys(tmp_path / "owner"), Clock())
    found.folder.create(found.owner)
    return found


def test_a_replaced_release_goes_when_no_board_can_know_of_it(
    offering: Offering, tiny: TinyBundle
) -> None:
    old, new = tiny("TINY_STATE"), tiny(counter=1)
    offering.offer(old, NAME)
    offering.offer(new, NAME)
    offering.wait(7)
    assert offering.has(old)  # the metadata that names it may be valid until now
    offering.wait(3)
    assert not offering.has(old)
    assert offering.has(new)
    names = [path.name for path in (offering.folder.path / "metadata").glob("*.targets.json")]
    assert len(names) == 1


def test_a_release_that_another_board_is_offered_stays(
    offering: Offering, tiny: TinyBundle
) -> None:
    offering.offer(tiny(), NAME, "y")
    offering.offer(tiny(counter=1), NAME)
    offering.wait(30)
    assert offering.has(tiny())
    offering.offer(tiny(counter=1), "y")
    offering.wait(10)
    assert not offering.has(tiny())


def test_what_is_still_to_be_offered_stays(offering: Offering, tiny: TinyBundle) -> None:
    offering.offer(tiny())  # as a host does that makes deltas first, or is killed meanwhile
    offering.wait(6)
    assert offering.has(tiny())
    offering.offer(tiny())
    offering.wait(6)
    assert offering.has(tiny())
    offering.wait(10)
    assert not offering.has(tiny())


def test_a_copy_of_the_folder_grants_the_time_of_its_own_snapshots(
    offering: Offering, tiny: TinyBundle, tmp_path: Path
) -> None:
    """The server elsewhere may get new metadata long after it was made."""
    offering.offer(tiny(), NAME)
    shutil.copytree(offering.folder.path, tmp_path / "copy")
    elsewhere = Offering(tmp_path / "copy", offering.owner, offering.clock)
    offering.offer(tiny(counter=1), NAME)
    elsewhere.wait(20)
    for part in ("files", "metadata"):
        for path in (offering.folder.path / part).iterdir():
            if "snapshot" not in path.name and "timestamp" not in path.name:
                shutil.copy2(path, tmp_path / "copy" / part)
    elsewhere.folder.renew()
    elsewhere.wait(7)
    assert elsewhere.has(tiny())
    elsewhere.wait(3)
    assert not elsewhere.has(tiny())
    assert elsewhere.has(tiny(counter=1))


def test_nothing_goes_if_the_folder_is_damaged(offering: Offering, tiny: TinyBundle) -> None:
    offering.offer(tiny(), NAME)
    offering.offer(new := tiny(counter=1), NAME)
    manifest = hashlib.sha256(new.manifest.to_json()).hexdigest()
    (offering.folder.path / "files" / manifest).write_bytes(b"{}")
    offering.wait(20)
    assert offering.has(tiny())


@pytest.mark.exhaustive
def test_boards_download_and_go_back_while_releases_go(place: Fetching, tiny: TinyBundle) -> None:
    place.offer(first := tiny())
    place.poll()
    place.offer(tiny("TINY_STATE", counter=1))
    with running_proxy("127.0.0.1", place.home.port) as proxy:
        proxy.faults[:] = [Fault(20_000, "down")]
        with pytest.raises(LaterError):
            place.poll(proxy.port)
    for _ in range(3):
        place.clock.now += 3 * DAY
        place.folder.renew()
    assert missing(place.folder, first)
    place.poll()
    place.offer(tiny("TINY_STATE", counter=1), back=True)
    place.poll()
    assert place.current == first.manifest.id
