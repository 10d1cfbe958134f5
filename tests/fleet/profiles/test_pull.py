"""From the inferences of a session to rows on the host, over failing links."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.agent.spool import Spool
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.transport import Completed, LinkLostError, LocalTransport, OnLine
from edgekit.host.errors import TransferError, UnreachableError
from edgekit.host.fleet.profiles import ProfileStore, pull, query, switch
from edgekit.host.fleet.profiles.catalog import ParquetPart
from tests.support.profile_batches import batch

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

TinyBundle = Callable[..., Bundle]
X = np.array([1, 2, 3, -4], np.float32)


class LosingTransport(LocalTransport):
    """Drops 30% of the answers after the board has processed the request."""

    lost = 0
    chance = random.Random(7)

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        done = super().run(command, deadline=deadline, on_line=on_line)
        if self.chance.random() < 0.3:
            self.lost += 1
            raise LinkLostError("the link was cut")
        return done


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    return ProfileStore(tmp_path / "profiles")


def infer(device: Device, count: int) -> None:
    with device.open() as session:
        for _ in range(count):
            session.run({"x": X})


def count(store: ProfileStore, what: str) -> int:
    return int(query(store, f"SELECT {what}", 1).rows[0][0])


@pytest.mark.slow
def test_a_session_is_sampled_and_its_profile_comes_home_once(
    tiny_device: Device, tiny: TinyBundle, store: ProfileStore, tmp_path: Path
) -> None:
    release = tiny().manifest.id
    assert pull(tiny_device, store).stored.new == 0
    infer(tiny_device, 30)
    assert pull(tiny_device, store).stored.new == 1
    assert pull(tiny_device, store).stored == pull(tiny_device, store).stored
    rows = query(store, "SELECT release, name, op, samples > 0 FROM operators ORDER BY position", 9)
    assert rows.rows == ((release, "twice", "Mul", True), (release, "plus", "Add", True))
    assert count(store, "sum(inferences) FROM batches") == 30
    assert list((tmp_path / "board" / "spool").glob("*.batch")) == []


def test_a_single_inference_leaves_nothing(tiny_device: Device, tmp_path: Path) -> None:
    tiny_device.run({"x": X})
    assert not (tmp_path / "board" / "spool").exists()


def test_sampling_is_off_with_one_line(tiny_device: Device, store: ProfileStore) -> None:
    switch(tiny_device, "off")
    infer(tiny_device, 5)
    found = pull(tiny_device, store)
    assert (found.on, found.stored.new) == (False, 0)
    switch(tiny_device, "on")
    infer(tiny_device, 5)
    assert pull(tiny_device, store).stored.new == 1


@pytest.mark.slow
def test_models_side_by_side_share_a_spool_and_temporary_ones_leave_none(
    tiny_device: Device, tiny: TinyBundle, store: ProfileStore
) -> None:
    named = tiny_device.named("second")
    named.deploy(tiny('TINY_NAME="second"'))
    infer(tiny_device, 5)
    infer(named, 5)
    with tiny_device.temporary() as temporary:
        temporary.deploy(tiny())
        infer(temporary, 5)
    pull(tiny_device, store)
    assert query(store, "SELECT model FROM batches ORDER BY model", 9).rows == (
        ("second",),
        ("tiny",),
    )


@pytest.mark.exhaustive
def test_nothing_is_lost_or_doubled_where_answers_are_lost(
    tmp_path: Path, store: ProfileStore
) -> None:
    transport = LosingTransport(tmp_path / "board")
    spool = Spool(tmp_path / "board" / "spool")
    expected = 0
    for _ in range(6):
        for _ in range(4):
            spool.add(batch(expected, operators=1000))
            expected += 1
        for _ in range(20):
            try:
                pull(Device(transport), store)
                break
            except UnreachableError:
                continue
    assert transport.lost > 3
    assert count(store, "count(*) FROM batches") == expected
    assert count(store, "count(DISTINCT uuid) FROM batches") == expected
    assert spool.fetch(1).data == b""


def test_a_store_that_fails_leaves_all_on_the_board(tmp_path: Path, store: ProfileStore) -> None:
    transport = LocalTransport(tmp_path / "board")
    Spool(tmp_path / "board" / "spool").add(batch(1))
    with pytest.raises(OSError, match="No space"):
        pull(Device(transport), ProfileStore(store.folder, write=full_disk))
    assert pull(Device(transport), store).stored.new == 1


def full_disk(*_: object) -> ParquetPart:
    raise OSError(28, "No space left on device")


def test_a_board_that_sends_nonsense_is_named(tmp_path: Path, store: ProfileStore) -> None:
    python = tmp_path / "python"
    answer = (
        '{"on": true, "spool": "' + "f" * 32 + '", "through": 1, "left": 0, "dropped": 0, '
        '"quarantined": 0, "data": "%s"}'
    )
    for data in ("AAAA", "eJwzNDI2AQAB+gD7", "%%%"):
        python.write_text(f"#!/bin/sh\necho '{answer % data}'\n")
        python.chmod(0o755)
        transport = LocalTransport(tmp_path / "board", python=str(python))
        with pytest.raises(TransferError, match="board 'local'"):
            pull(Device(transport), store)
