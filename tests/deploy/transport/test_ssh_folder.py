"""Boards over SSH whose home cannot hold releases: refused by the probe, another folder works."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey
from edgekit.host.deploy.doctor import Verdict, examine_device
from edgekit.host.deploy.release import enroll
from edgekit.host.deploy.transport.ssh import SshTarget, SshTransport
from edgekit.host.errors import IncompatibleError
from edgekit.kb.targets.board import load_board
from tests.support.sshd import SECONDS, Sshd, works

pytestmark = [pytest.mark.sshd, pytest.mark.usefixtures("no_keys_of_the_user")]

_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
# Each session sees the home on a mount with other options, which nothing else does.
_REMOUNT = """\
exec {unshare} sh -c 'mount --bind "$HOME" "$HOME" && mount -o remount,bind,{option} "$HOME" &&
cd "$HOME" && exec sh -c "$SSH_ORIGINAL_COMMAND"'"""


@pytest.fixture
def remount(server: Sshd) -> Callable[[str], None]:
    if subprocess.run([*_NAMESPACE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("expected mount namespaces for users, found none")
    return lambda option: server.before_login(
        _REMOUNT.format(unshare=" ".join(_NAMESPACE), option=option)
    )


@pytest.fixture
def target(server: Sshd) -> SshTarget:
    return SshTarget("b", server.host, server.port, server.user, server.identity, server.host_key)


@pytest.mark.slow
def test_a_home_mounted_noexec_is_refused_before_the_release_is_sent(
    server: Sshd,
    target: SshTarget,
    remount: Callable[[str], None],
    tiny: Callable[..., Bundle],
    trusted: SigningKey,
    tmp_path: Path,
) -> None:
    remount("noexec")
    device = Device(SshTransport(target))
    match = r"found .*/home/\.edgekit, on a mount with noexec; .*--folder"
    for attempt in (device.deploy, device.plan):
        with pytest.raises(IncompatibleError, match=match) as caught:
            attempt(tiny())
        assert caught.value.exit_code == 5
    assert not list((server.home / ".edgekit").glob("incoming/*/*"))
    found = {f.check: f for f in examine_device(device, load_board("local"))}
    assert found["folder"].verdict is Verdict.FAIL
    device.transport.close()
    other = Device(SshTransport(target, str(tmp_path / "other")))
    enroll(other, trusted.public)
    assert other.deploy(tiny()).release.changed
    other.transport.close()


def test_a_home_that_is_read_only_has_exit_code_5(
    target: SshTarget, remount: Callable[[str], None]
) -> None:
    remount("ro")
    with pytest.raises(IncompatibleError, match=r"folder that can be written, .*Read-only") as none:
        works(SshTransport(target))
    assert none.value.exit_code == 5


def test_a_folder_that_became_read_only_has_exit_code_5(
    target: SshTarget, remount: Callable[[str], None], tiny: Callable[..., Bundle]
) -> None:
    device = Device(SshTransport(target))
    device.call("probe")
    device.transport.close()
    remount("ro")
    with pytest.raises(IncompatibleError, match="Read-only file system; mount it writable"):
        device.deploy(tiny())
    with pytest.raises(IncompatibleError, match="expected a folder that can be written"):
        device.transport.put(b"x", "file", deadline=SECONDS)
    device.transport.close()


def test_a_folder_of_another_user_is_refused(target: SshTarget, tmp_path: Path) -> None:
    """Anybody may make one of that name in /var/tmp, and fill it."""
    foreign = Path("/usr")  # of root, if we are not
    if os.getuid() == 0:
        foreign = tmp_path / "foreign"
        foreign.mkdir()
        os.chown(foreign, 12345, 12345)
    with pytest.raises(IncompatibleError, match=r"expected a folder .*: of another user"):
        works(SshTransport(target, str(foreign)))
