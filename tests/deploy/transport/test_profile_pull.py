"""Fetching profiles over SSH and over a serial console, including faulty links."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.spool import Spool
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.transport.serial import SerialTransport
from edgekit.host.deploy.transport.ssh import SshTransport
from edgekit.host.errors import UnreachableError
from edgekit.host.fleet.profiles import ProfileStore, pull, query
from tests.support.profile_batches import batch
from tests.support.proxy import Fault, running_proxy
from tests.support.sshd import Sshd
from tests.support.tty_board import Faults, TtyBoard

pytestmark = pytest.mark.slow

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
BATCHES = 3


def fill(home: Path, first: int = 0) -> Spool:
    spool = Spool(home / ".edgekit" / "spool")
    for number in range(first, first + BATCHES):
        spool.add(batch(number, operators=300))
    return spool


def check_all_is_home(store: ProfileStore, spool: Spool, expected: int = BATCHES) -> None:
    sql = "SELECT count(*), count(DISTINCT uuid) FROM batches"
    assert query(store, sql, 1).rows == ((expected, expected),)
    assert spool.fetch(1).data == b""


@pytest.mark.sshd
def test_profiles_come_home_over_ssh(
    server: Sshd, connect: Callable[..., SshTransport], tmp_path: Path
) -> None:
    spool, store = fill(server.home), ProfileStore(tmp_path / "store")
    assert pull(Device(connect()), store).stored.new == BATCHES
    check_all_is_home(store, spool)
    assert pull(Device(connect()), store).stored.new == 0


@pytest.mark.sshd
def test_a_cut_connection_loses_and_doubles_nothing(
    server: Sshd, connect: Callable[..., SshTransport], tmp_path: Path
) -> None:
    """The link is cut before, during and after the answer."""
    store = ProfileStore(tmp_path / "store")
    with running_proxy(server.host, server.port) as proxy:
        spool = fill(server.home)
        pull(Device(connect(port=proxy.port)), store)
        total, cut = proxy.down, 0
        for i, tenth in enumerate((4, 6, 7, 8, 9), 1):
            fill(server.home, i * BATCHES)
            proxy.faults.append(Fault(total * tenth // 10, "down"))
            try:
                pull(Device(connect(port=proxy.port)), store)
            except UnreachableError:
                cut += 1
    assert cut > 1
    pull(Device(connect()), store)
    check_all_is_home(store, spool, 6 * BATCHES)


def test_profiles_come_home_over_a_bad_serial_line(tmp_path: Path) -> None:
    with TtyBoard(tmp_path, login=True) as console:
        spool, store = fill(tmp_path), ProfileStore(tmp_path / "store")
        transport = SerialTransport(console.target())
        console.faults = Faults(noise=1 / 3000, drop=1 / 15_000, flip=1 / 15_000)
        assert pull(Device(transport), store).stored.new == BATCHES
        assert console.damages > 3
        transport.close()
    check_all_is_home(store, spool)
