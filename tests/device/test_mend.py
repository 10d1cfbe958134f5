"""Repair of a board's folder after damage by users, disks or killed processes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent import release
from edgekit.device.runtime.agent.integrity import write_record
from edgekit.device.runtime.agent.recovery import recover_if_needed
from edgekit.device.runtime.agent.status import current_release, leave, status, verify
from edgekit.device.runtime.agent.store import Links, Store
from edgekit.device.runtime.errors import InputError, RolledBackError, TransferError
from edgekit.host.deploy.bundle import Bundle

MakeBundle = Callable[..., Bundle]
Send = Callable[..., str]


class Board(Store):
    """A board that records its messages."""

    def __init__(self, root: Path) -> None:
        self.shown: list[str] = []
        super().__init__(root, self.shown.append)


@pytest.fixture
def board(store: Store, paper: MakeBundle, send: Send) -> Board:
    """Release `second` runs; `first` is the previous one."""
    for text in ("first", "second"):
        _apply(store, send(store, paper(text)))
    return Board(store.root)


@pytest.fixture
def ids(paper: MakeBundle) -> tuple[str, str]:
    return paper("second").manifest.id, paper("first").manifest.id


def _apply(store: Store, id_: str) -> release.DeployOutcome:
    return release.apply(store, id_, lambda _: {}, lambda _: None)


def _damage(path: Path) -> None:
    """Flips a bit in a fresh copy of the file, because releases share files by hard links."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("odd", ["dangling", "elsewhere", "folder", "file"])
@pytest.mark.parametrize("name", ["current", "previous"])
def test_an_odd_link_is_repaired_and_reported(
    board: Board, ids: tuple[str, str], name: str, odd: str
) -> None:
    path = board.root / name
    path.unlink()
    if odd == "dangling":
        path.symlink_to("releases/0123456789abcdef")
    elif odd == "elsewhere":
        path.symlink_to("/tmp")
    elif odd == "folder":
        path.mkdir()
    else:
        path.write_text("second")
    found = status(board)
    expected = Links(*ids) if name == "previous" else Links(ids[1], ids[0])
    assert board.links() == expected
    assert found.current is not None
    assert found.current.damage == ""
    assert len(board.shown) == 1
    assert board.shown[0].startswith(f"{name}: expected a link to a release, found")
    assert status(board).current == found.current
    assert len(board.shown) == 1


def test_two_links_to_one_release_become_links_to_two(board: Board, ids: tuple[str, str]) -> None:
    board.set_links(Links(ids[0], ids[0]))
    status(board)
    assert board.links() == Links(*ids)


def test_missing_target_of_current_goes_back_to_previous(
    board: Board, ids: tuple[str, str]
) -> None:
    shutil.rmtree(board.releases / ids[0])
    assert current_release(board)[0].id == ids[1]
    assert board.links() == Links(ids[1], None)


def test_copy_of_a_release_in_place_of_the_link_is_that_release(
    board: Board, ids: tuple[str, str]
) -> None:
    (board.root / "current").unlink()
    (board.releases / ids[0]).rename(board.root / "current")
    assert current_release(board)[0].id == ids[0]
    assert board.links() == Links(*ids)


@pytest.mark.parametrize(
    "garbage", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"current": "0123456789abcdef"}', None]
)
def test_garbage_in_pending_is_removed_and_reported(
    board: Board, ids: tuple[str, str], garbage: bytes | None
) -> None:
    if garbage is None:
        board.pending.mkdir()
    else:
        board.pending.write_bytes(garbage)
    found = status(board)
    assert not found.interrupted
    assert board.links() == Links(*ids)
    assert len(board.shown) == 1
    assert board.shown[0].startswith("pending.json: expected")
    _apply(board, ids[0])


@pytest.mark.parametrize("name", ["failure.json", "counters.json", "leftovers.json"])
def test_garbage_in_other_notes_stops_nothing(
    board: Board, ids: tuple[str, str], paper: MakeBundle, send: Send, name: str
) -> None:
    (board.root / name).unlink(missing_ok=True)
    (board.root / name).mkdir()
    assert status(board).last_failure is None
    assert board.shown[0].startswith(f"{name}: expected a note of this board, found a folder")
    assert _apply(board, send(board, paper("third"))).end == "committed"


def test_nothing_is_reported_if_nothing_is_odd(board: Board) -> None:
    for look in (recover_if_needed, status, verify, current_release):
        look(board)
    assert board.shown == []


def test_leftovers_of_an_interrupted_mending_go_with_the_next_deploy(
    board: Board, ids: tuple[str, str], paper: MakeBundle, send: Send
) -> None:
    left = [board.releases / ids[0] / ".runtime.pyz", board.releases / ids[0] / "golden" / ".in0"]
    left += [board.root / ".pending.json", board.root / ".current"]
    for path in left:
        path.write_bytes(b"half")
    _apply(board, send(board, paper("third")))
    assert [path for path in left if path.exists()] == []


def test_release_that_was_there_before_leaves_nothing_behind(
    board: Board, ids: tuple[str, str], paper: MakeBundle, send: Send
) -> None:
    """Its files are hard links to the running release's, and rename() between two links to the
    same file does nothing."""
    for text in ("first", "second", "first", "second"):
        _apply(board, send(board, paper(text), ()))
        assert list(board.root.rglob(".*")) == []
    assert board.links() == Links(*ids)


def test_damaged_release_goes_back_by_itself(board: Board, ids: tuple[str, str]) -> None:
    _damage(board.releases / ids[0] / "model.so")
    message = rf"release {ids[0]} is damaged \(model.so: expected CRC-32 \w+, found .*{ids[1]} runs"
    with pytest.raises(RolledBackError, match=message):
        current_release(board)
    assert board.links() == Links(ids[1], ids[0])
    assert current_release(board)[0].id == ids[1]
    failure = status(board).last_failure
    assert failure is not None
    assert failure["release"] == ids[0]
    with pytest.raises(TransferError, match=f"release {ids[0]} is damaged: model.so"):
        release.rollback(board)
    assert board.links() == Links(ids[1], ids[0])


def test_damaged_release_with_a_damaged_one_before_stays_and_is_refused(
    board: Board, ids: tuple[str, str]
) -> None:
    for id_ in ids:
        _damage(board.releases / id_ / "weights.bin")
    for look in (current_release, verify):
        with pytest.raises(TransferError, match=f"{ids[0]} is damaged: weights.bin"):
            look(board)
    assert board.links() == Links(*ids)
    found = status(board)
    assert found.current is not None
    assert found.current.damage.startswith("weights.bin: expected")
    assert f"release {ids[0]} is damaged" in board.shown[-1]


def test_whoever_sees_the_release_before_sees_why(board: Board, ids: tuple[str, str]) -> None:
    """A reader without the lock may look between the writing of the note and of the links."""
    seen = []

    class Watched(Board):
        def set_links(self, links: Links) -> None:
            seen.append((links, self.read_note(self.failure)))
            super().set_links(links)

    assert leave(Watched(board.root), ids[0], "application", "it hangs") == ids[1]
    links, failure = seen[-1]
    assert links == Links(ids[1], ids[0])
    assert failure is not None
    assert (failure["release"], failure["reason"]) == (ids[0], "it hangs")


def test_note_that_cannot_be_written_keeps_no_bad_release_in_service(
    board: Board, ids: tuple[str, str]
) -> None:
    class Full(Board):
        def write_note(self, path: Path, note: dict[str, Any]) -> None:
            if path == self.failure:
                raise OSError(28, "No space left on device")
            super().write_note(path, note)

    assert leave(Full(board.root), ids[0], "application", "it hangs") == ids[1]
    assert board.links() == Links(ids[1], ids[0])


def test_status_goes_back_too(board: Board, ids: tuple[str, str]) -> None:
    (board.releases / ids[0] / "manifest.json").write_bytes(b"{}")
    found = status(board)
    assert found.current is not None
    assert found.previous is not None
    assert (found.current.id, found.current.damage) == (ids[1], "")
    assert found.previous.id == ids[0]
    assert found.previous.damage.startswith("manifest.json: expected")
    assert len(board.shown) == 1
    with pytest.raises(TransferError, match=f"release {ids[0]} is damaged: manifest.json"):
        verify(board)


def test_damage_that_keeps_the_sum_is_found_by_sha256(board: Board, ids: tuple[str, str]) -> None:
    """Damage can be crafted to keep the CRC-32, but not the SHA-256."""
    record = board.releases / ids[0] / "installed.json"
    path = board.releases / ids[0] / "model.so"
    _damage(path)
    write_record(record.parent, board.manifest(ids[0]))
    assert current_release(board)[0].id == ids[0]
    with pytest.raises(RolledBackError, match=r"model\.so: expected SHA-256"):
        verify(board)


def test_release_of_an_older_kit_gets_its_record(board: Board, ids: tuple[str, str]) -> None:
    record = board.releases / ids[0] / "installed.json"
    whole = record.read_bytes()
    record.unlink()
    assert current_release(board)[0].id == ids[0]
    assert record.read_bytes() == whole
    assert board.shown == []


def test_a_damaged_record_is_reported_and_rebuilt(board: Board, ids: tuple[str, str]) -> None:
    record = board.releases / ids[0] / "installed.json"
    whole = record.read_bytes()
    record.write_bytes(whole.replace(b"{", b"[", 1))
    assert current_release(board)[0].id == ids[0]
    assert record.read_bytes() == whole
    assert len(board.shown) == 1


def test_damaged_signature_is_sent_again(
    board: Board, ids: tuple[str, str], paper: MakeBundle, send: Send
) -> None:
    signature = board.releases / ids[0] / "manifest.json.sig"
    signature.write_bytes(b"signed")
    record = signature.with_name("installed.json")
    record.unlink()
    current_release(board)  # recorded with its signature
    assert "manifest.json.sig" in json.loads(record.read_bytes())["files"]
    signature.write_bytes(b"sighed")
    assert release.plan(board, ids[0], sent=False) is None
    _apply(board, send(board, paper("second"), ()))
    assert current_release(board)[0].id == ids[0]


def test_nothing_to_verify(store: Store) -> None:
    with pytest.raises(InputError, match="expected a deployed model, found none"):
        verify(store)


@pytest.mark.parametrize("call", ["unlink", "rename", "fsync"])
def test_rollback_that_fails_changes_nothing(board: Board, ids: tuple[str, str], call: str) -> None:
    """The note is removed but syncing the folder fails: a reported failure leaves no change."""
    synced: list[Path] = []

    class Failing(Board):
        def sync(self, folder: Path) -> None:
            synced.append(folder)
            if len(synced) == {"unlink": 4, "rename": 2, "fsync": 1}[call]:
                raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        release.rollback(Failing(board.root))
    assert board.links() == Links(*ids)
    assert not board.pending.exists()
