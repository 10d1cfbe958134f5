"""One deploy at a time per board: waiting, taking over, and no stale locks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.session import DeploySession
from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import BusyError as DeviceBusyError
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey
from edgekit.host.deploy.release import DeployProgress, deploy
from edgekit.host.deploy.transport import LocalTransport, OnBytes, Transport
from edgekit.host.deploy.transport.ssh import SshTarget, SshTransport
from edgekit.host.errors import BusyError, EdgekitError, UnreachableError
from tests.support.patience import until
from tests.support.sshd import Sshd, running_sshd

pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]
Connect = Callable[[], Transport]
AT_ONCE = 20


@contextmanager
def local_board(folder: Path) -> Iterator[tuple[Connect, Path]]:
    yield lambda: LocalTransport(folder / "board"), folder / "board"


@contextmanager
def ssh_board(folder: Path) -> Iterator[tuple[Connect, Path]]:
    with running_sshd(folder / "sshd") as server:
        yield lambda: ssh(server), server.home / ".edgekit"


def ssh(server: Sshd) -> SshTransport:
    return SshTransport(
        SshTarget("local", server.host, server.port, server.user, server.identity, server.host_key)
    )


@pytest.mark.parametrize(
    "board",
    [
        pytest.param(local_board, marks=pytest.mark.exhaustive),
        pytest.param(ssh_board, marks=pytest.mark.sshd),
    ],
)
@pytest.mark.exhaustive
def test_of_twenty_deploys_at_once_one_wins(
    board: Callable[..., Iterator[tuple[Connect, Path]]],
    tiny: TinyBundle,
    trusted: SigningKey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The winner waits at the start of its transfer until all others are refused."""
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    bundles = [tiny(f'TINY_NAME="m{i % 4}"') for i in range(AT_ONCE)]
    winners: list[str] = []
    refused: list[EdgekitError] = []
    all_refused = threading.Event()

    def one(transport: Transport, bundle: Bundle) -> None:
        def on_step(step: DeployProgress) -> None:
            if step.state == "transfer" and step.done == 0:
                assert all_refused.wait(30)

        try:
            winners.append(deploy(Device(transport), bundle, progress=on_step).id)
        except EdgekitError as error:
            refused.append(error)
            if len(refused) == AT_ONCE - 1:
                all_refused.set()

    with board(tmp_path) as (connect, root):
        store = Store(root)
        store.create()
        enroll(store, trusted.public.line)
        transports = [connect() for _ in bundles]
        for transport in transports:  # sshd drops logins if too many arrive at once
            transport.run(["true"], deadline=30)
        threads = [
            threading.Thread(target=one, args=pair)
            for pair in zip(transports, bundles, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) == 1, refused
        assert len(refused) == AT_ONCE - 1
        for error in refused:
            assert isinstance(error, BusyError)
            assert f"process {os.getpid()} (process " in str(error)
        assert store.links().current == winners[0]
        assert deploy(Device(transports[0]), bundles[0]).id == bundles[0].manifest.id
        for transport in transports:
            transport.close()


@pytest.mark.exhaustive
def test_lock_is_free_after_each_deploy(device: Device, tiny: TinyBundle) -> None:
    """Even after rejected deploys, and immediately."""
    for i in range(3):
        device.deploy(tiny(f'TINY_NAME="m{i}"'))
        with pytest.raises(EdgekitError):
            device.deploy(tiny("TINY_CRASH"))


def test_killed_host_is_taken_over_at_once(
    device: Device, tiny: TinyBundle, board_root: Path, tmp_path: Path
) -> None:
    bundle = tiny()
    bundle.write(tmp_path / "tiny.ekb")
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from edgekit.host.deploy.api import Device\n"
        "from edgekit.host.deploy.bundle import Bundle\n"
        "from edgekit.host.deploy.transport import LocalTransport\n"
        "def step(s): s.state == 'transfer' and os.kill(os.getpid(), signal.SIGKILL)\n"
        "board = Device(LocalTransport(Path(sys.argv[1])))\n"
        "board.deploy(Bundle.read(Path(sys.argv[2])), progress=step)"
    )
    command = [sys.executable, "-c", code, str(board_root), str(tmp_path / "tiny.ekb")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    with pytest.raises(DeviceBusyError):
        DeploySession(Store(board_root), "0" * 16, "another host").enter()
    assert device.deploy(bundle).release.changed


def test_other_commands_wait_for_the_deploy(
    tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    tiny_device.deploy(tiny('TINY_NAME="other"'))
    session = DeploySession(Store(board_root), "1" * 16, "ann@laptop, process 7")
    session.enter()
    with pytest.raises(BusyError, match=r"found one running by ann@laptop, process 7 \(process"):
        tiny_device.rollback()
    session.end()
    tiny_device.rollback()


class CutOff(LocalTransport):
    """Loses its link while sending model.so, once."""

    cut = True

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        if self.cut and path.endswith("model.so"):
            self.cut = False
            raise UnreachableError("board 'local': expected an answer, found none")
        super().put(data, path, deadline=deadline, on_bytes=on_bytes)


def test_lost_link_is_taken_over_at_once(board_root: Path, tiny: TinyBundle) -> None:
    transport = CutOff(board_root)
    with pytest.raises(UnreachableError, match=r"found none \(in state 'transfer' of the deploy"):
        deploy(Device(transport), tiny())
    with pytest.raises(DeviceBusyError):
        DeploySession(Store(board_root), "0" * 16, "another host").enter()
    assert deploy(Device(transport), tiny()).changed


def test_killed_keeper_leaves_no_lock(board_root: Path) -> None:
    store = Store(board_root)
    kept(store, "1" * 16, idle_seconds=60)
    os.kill(holder(store)["process"]["pid"], signal.SIGKILL)
    until(lambda: entered(store))


def test_keeper_ends_in_silence_and_not_before(board_root: Path) -> None:
    """Retries with a longer timeout if a slow machine exceeds it between two writes."""
    store = Store(board_root)
    folder = store.incoming / ("0" * 16)
    folder.mkdir()
    assert any(stays_while_files_grow(store, folder, seconds) for seconds in (1.5, 15.0, 60.0))
    until(lambda: entered(store))


def stays_while_files_grow(store: Store, folder: Path, idle_seconds: float) -> bool:
    """True if the keeper holds the lock for twice its idle timeout while files grow."""
    kept(store, "1" * 16, idle_seconds)
    for i in range(8):
        time.sleep(idle_seconds / 4)
        (folder / "file").write_bytes(bytes(i + 1))
        if entered(store):
            return False
    with pytest.raises(DeviceBusyError, match="by first"):
        DeploySession(store, "2" * 16, "next").enter()
    return True


def test_only_the_named_deploy_is_taken_over(board_root: Path) -> None:
    store = Store(board_root)
    kept(store, "1" * 16, idle_seconds=60)
    with pytest.raises(DeviceBusyError) as caught:
        DeploySession(store, "2" * 16, "next").enter(take_over="3" * 16)
    assert caught.value.details["holder"] == "1" * 16
    DeploySession(store, "1" * 16, "first").enter()  # a session may re-enter its own lock
    session = DeploySession(store, "2" * 16, "next")
    session.enter(take_over="1" * 16)
    assert holder(store)["token"] == "2" * 16
    session.end()
    assert entered(store)


def test_dead_deploys_are_forgotten_after_a_day(
    device: Device, tiny: TinyBundle, tmp_path: Path
) -> None:
    folder = tmp_path / "home" / "deploys"
    folder.mkdir(parents=True)
    for name, age in (("a" * 16, 2 * 86400), ("b" * 16, 0)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age,) * 2)
    device.deploy(tiny())
    assert [path.name for path in folder.iterdir()] == ["b" * 16]


def kept(store: Store, token: str, idle_seconds: float) -> None:
    """Starts a session in a separate process, as `plan` does."""
    code = (
        "import sys; from pathlib import Path\n"
        "from edgekit.device.runtime.agent.session import DeploySession\n"
        "from edgekit.device.runtime.agent.store import Store\n"
        "session = DeploySession(Store(Path(sys.argv[1])), sys.argv[2], 'first'); session.enter()\n"
        "session.keep('0' * 16, float(sys.argv[3]))"
    )
    command = [sys.executable, "-c", code, str(store.root), token, str(idle_seconds)]
    subprocess.run(command, check=True, stdout=subprocess.PIPE)


def holder(store: Store) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(store.session.read_text())
    return found


def entered(store: Store) -> bool:
    session = DeploySession(store, "4" * 16, "probe")
    try:
        session.enter()
    except DeviceBusyError:
        return False
    session.end()
    return True
