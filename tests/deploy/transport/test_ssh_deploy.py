"""Complete deploys over SSH to a server on this machine, including faulty links."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from edgekit.host.compiler.artifact import Artifact
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey, build_bundle, sign_bundle
from edgekit.host.deploy.release import DeployProgress, deploy, enroll
from edgekit.host.deploy.release.deploy import DEADLINES
from edgekit.host.deploy.transport.ssh import SshTransport
from edgekit.host.errors import EdgekitError, RolledBackError, UnreachableError
from edgekit.kb.targets.board import load_board
from tests.support.patience import ends_by_itself
from tests.support.places import few_or_all
from tests.support.proxy import Fault, running_proxy
from tests.support.sshd import Sshd

pytestmark = pytest.mark.sshd

Connect = Callable[..., SshTransport]
TinyBundle = Callable[..., Bundle]
X = np.array([1, 2, 3, -4], np.float32)
OTHER = 'TINY_NAME="other"'


@pytest.fixture
def board(server: Sshd, connect: Connect, trusted: SigningKey, home: None) -> Device:
    device = Device(connect())
    enroll(device, trusted.public)
    return device


@pytest.fixture
def heavy(tiny_artifact: Callable[..., Artifact], trusted: SigningKey) -> Bundle:
    """A bundle of two million bytes; trailing data after an ELF file is harmless."""
    artifact = tiny_artifact('TINY_NAME="heavy"')
    library = artifact.library + os.urandom(2_000_000)
    return sign_bundle(
        build_bundle(replace(artifact, library=library), load_board("local"), 0), trusted
    )


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.mark.slow
def test_a_plan_leaves_the_board_as_it_is(board: Device, server: Sshd, tiny: TinyBundle) -> None:
    first = tiny()
    board.deploy(first)
    before = sorted(server.home.rglob("*"))
    assert board.plan(first).unchanged
    plan = board.plan(tiny(OTHER))
    assert (plan.send, plan.replaces) == (("model.so",), first.manifest.id)
    assert sorted(server.home.rglob("*")) == before


@pytest.mark.slow
def test_deploy_run_and_go_back(board: Device, tiny: TinyBundle) -> None:
    deployed = board.deploy(tiny())
    outputs, timings = deployed.run({"x": X})
    np.testing.assert_array_equal(outputs["y"], 2 * X + 1)
    assert timings.release == deployed.release.id
    assert board.bench({"x": X}, count=10).runs == 10
    second = board.deploy(tiny(OTHER)).release
    assert second.previous == deployed.release.id
    status = board.rollback()
    assert status.current is not None
    assert status.current.id == deployed.release.id


@pytest.mark.slow
@pytest.mark.parametrize("defines", ["TINY_CRASH", "TINY_HANG", "TINY_WRONG"])
def test_unhealthy_release_goes_back_by_itself(
    board: Device, tiny: TinyBundle, defines: str
) -> None:
    # Only a hang runs into the limit; other answers may take over a second on a busy machine.
    seconds = 1 if defines == "TINY_HANG" else 60
    old = board.deploy(tiny()).release
    with pytest.raises(RolledBackError, match=f"board 'b': .*{old.id} runs again"):
        deploy(board, tiny(defines), health_seconds=seconds)
    np.testing.assert_array_equal(board.run({"x": X})[0]["y"], 2 * X + 1)


def test_again_costs_little(
    server: Sshd, connect: Connect, board: Device, tiny: TinyBundle
) -> None:
    board.deploy(tiny())
    link = server.home / ".edgekit" / "current"
    before = link.lstat()
    with running_proxy(server.host, server.port) as proxy:
        device = Device(connect(port=proxy.port))
        assert not device.deploy(tiny()).release.changed
        device.transport.close()
        assert proxy.total < 20_000
    after = link.lstat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("tenth", few_or_all(range(1, 10), [8]))
def test_deploy_through_a_cut_link(
    server: Sshd,
    connect: Connect,
    board: Device,
    tiny: TinyBundle,
    heavy: Bundle,
    way: str,
    tenth: int,
) -> None:
    """Cut at each tenth of the traffic: the deploy succeeds, or the next one does."""
    board.deploy(tiny())
    with running_proxy(server.host, server.port) as proxy:
        size = sum(map(len, heavy.files.values())) if way == "up" else 12_000
        proxy.faults.append(Fault(size * tenth // 10, way))
        device = Device(connect(port=proxy.port))
        try:
            release = device.deploy(heavy).release
        except EdgekitError:
            np.testing.assert_array_equal(board.run({"x": X})[0]["y"], 2 * X + 1)
            release = device.deploy(heavy).release
    status = board.status()
    assert status.current is not None
    assert status.current.id == release.id == heavy.manifest.id


@pytest.mark.slow
@pytest.mark.parametrize("state", ["probe", "plan", "verify", "health"])
def test_silent_link_names_the_state(
    server: Sshd, connect: Connect, board: Device, tiny: TinyBundle, state: str
) -> None:
    old = board.deploy(tiny()).release
    with running_proxy(server.host, server.port) as proxy:
        device = Device(connect(port=proxy.port))

        def silence(step: DeployProgress) -> None:
            if step.state == state:
                proxy.silence()

        deadlines = dict.fromkeys(DEADLINES, 2.0)
        with ends_by_itself():
            try:
                deploy(
                    device,
                    tiny(OTHER),
                    progress=silence,
                    deadlines=deadlines,
                    health_seconds=1,
                )
            except UnreachableError as error:
                assert re.search(r"in state '\w+' of the deploy", str(error))
            else:
                assert state == "health"  # the last answer may be there before the silence
    status = board.status()
    assert status.current is not None
    assert status.current.id in (old.id, tiny(OTHER).manifest.id)


@pytest.mark.slow
def test_ctrl_c_in_the_transfer_leaves_the_old_release(
    board: Device, tiny: TinyBundle, heavy: Bundle
) -> None:
    old = board.deploy(tiny()).release

    def stop(step: DeployProgress) -> None:
        if step.state == "transfer" and step.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        board.deploy(heavy, progress=stop)
    status = board.status()
    assert status.current is not None
    assert status.current.id == old.id


@pytest.mark.slow
def test_ctrl_c_while_the_board_works(board: Device, tiny: TinyBundle) -> None:
    """The command on the board ends as well, so the next deploy finds the board idle."""
    board.deploy(tiny())
    timer = threading.Timer(1.5, os.kill, (os.getpid(), 2))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        board.deploy(tiny("TINY_HANG"))
    timer.join()
    assert board.deploy(tiny(OTHER)).release.changed
