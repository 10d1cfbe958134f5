"""A machine in namespaces whose first process is this host's systemd.

Its users linger, and it can boot and lose power. Its programs are this host's, its files are in a
folder.

Only root can create one, on a host with cgroup2, systemd, dbus-daemon and util-linux; devices,
kernel and network are shared with the host.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.deploy.transport.base import Completed, OnBytes, OnLine

USER, UID = "board", 1000
_PROGRAMS = ("unshare", "nsenter", "setpriv", "chroot", "dbus-daemon", "loginctl")
_SYSTEMD = Path("/usr/lib/systemd/systemd")
_MOST_LOOKS = 1000  # polls, at least 0.1 s apart
_FILES = ("nsswitch.conf", "ld.so.cache")
_PAM = """\
account required pam_permit.so
session required pam_permit.so
session optional pam_systemd.so
"""
_BOOT = """
mount -t tmpfs tmpfs "$1/root"
cd "$1/root"
mkdir -p proc sys dev run tmp etc var usr
for name in bin sbin lib lib64; do [ ! -e /$name ] || ln -s usr/$name $name; done
mount --bind /usr usr
mount -o remount,bind,ro usr
for name in etc var; do mount --bind "$1/$name" $name; done
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs sys/fs
mkdir sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
for name in dev run tmp; do mount -t tmpfs tmpfs $name; done
for name in null zero full random urandom tty; do
    touch dev/$name
    mount --bind /dev/$name dev/$name
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mkdir -p "./$1"  # it may be in /tmp
mount --bind "$1" "./$1"
exec env -i container=edgekit PATH=/usr/bin:/usr/sbin chroot . SYSTEMD --system --log-target=console
""".replace("SYSTEMD", str(_SYSTEMD))
_INSIDE = 'cd "$0" && exec "$@"'


def missing() -> str:
    """What this host lacks to run a machine; empty if nothing."""
    if os.getuid() != 0:
        return "root"
    if not _SYSTEMD.exists() or not Path("/usr/bin/python3").exists():
        return "Debian's systemd and python3"
    if _groups() is None:
        return "a cgroup2 that may be written"
    return next((name for name in _PROGRAMS if shutil.which(name) is None), "")


class Machine:
    """One machine in `folder`; the files it writes there persist across boots."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self._process: subprocess.Popen[bytes] | None = None
        self._group = (_groups() or Path()) / f"edgekit-{os.getpid()}"
        self._first = 0
        for name in ("root", "etc", "var", "home"):
            (folder / name).mkdir(parents=True)
        os.chown(self.home, UID, UID)
        self._write_etc()

    def boot(self) -> None:
        """Boot and wait until systemd responds."""
        self._group.mkdir(exist_ok=True)
        join = f'echo $$ >"{self._group}/cgroup.procs"; exec "$@"'
        spaces = ("--mount", "--pid", "--fork", "--kill-child", "--cgroup", "--uts", "--ipc")
        command = ["unshare", *spaces, "--propagation=private", "sh", "-eu", "-c", _BOOT, "sh"]
        with (self.folder / "console").open("wb") as console:
            self._process = subprocess.Popen(
                ["sh", "-eu", "-c", join, "sh", *command, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        looks = iter(range(_MOST_LOOKS))
        while not self._answers():
            stuck = self._process.poll() is not None or next(looks, None) is None
            assert not stuck, (self.folder / "console").read_text()

    def run(self, *command: str, user: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program in the machine, as its user or as root."""
        return subprocess.run(
            [*self._entered(user), str(self.home), *command],
            capture_output=True,
            text=True,
            check=False,
        )

    def transport(self) -> LocalTransport:
        """A transport to the user's ~/.edgekit that survives reboots."""
        return _Inside(self)

    def enter_script(self) -> str:
        """A shell script for the host that runs Python in the currently booted machine."""
        words = " ".join(f"'{word}'" for word in self._entered(user=True))
        return f'#!/bin/sh\nexec {words} "$PWD" /usr/bin/python3 "$@"\n'

    def cut_power(self) -> None:
        """Kill all its processes at once."""
        if self._process is None:
            return
        if self._first:
            os.kill(self._first, signal.SIGKILL)
        else:  # it has not started one yet
            self._process.kill()
        self._process.wait()
        self._process, self._first = None, 0

    def close(self) -> None:
        self.cut_power()
        for folder in sorted(self._group.rglob("*/"), reverse=True):
            folder.rmdir()
        if self._group.exists():
            self._group.rmdir()

    def _entered(self, user: bool) -> list[str]:
        spaces = ("--mount", "--pid", "--cgroup", "--uts", "--ipc", "--root", "--wd")
        home = f"HOME={self.home}"
        environment = ["env", "-i", "PATH=/usr/bin:/usr/sbin", home]
        become = [f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--no-new-privs"]
        who = ["setpriv", *become] if user else []
        enter = ["nsenter", "-t", str(self._first), *spaces]
        return [*enter, *environment, *who, "sh", "-c", _INSIDE]

    def _answers(self) -> bool:
        assert self._process is not None
        time.sleep(0.1)  # limit the polling rate
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        try:
            self._first = int(children.read_text().split()[0])
        except (OSError, IndexError):
            return False
        return self.run("systemctl", "is-active", "multi-user.target", user=False).returncode == 0

    def _write_etc(self) -> None:
        etc = self.folder / "etc"
        for name in _FILES:
            if (Path("/etc") / name).exists():
                shutil.copyfile(Path("/etc") / name, etc / name)
        (etc / "pam.d").mkdir()
        (etc / "pam.d" / "systemd-user").write_text(_PAM)
        people = f"root:x:0:0::/root:/bin/sh\n{USER}:x:{UID}:{UID}::{self.home}:/bin/sh\n"
        (etc / "passwd").write_text(f"{people}messagebus:x:101:101::/:/usr/sbin/nologin\n")
        (etc / "group").write_text(f"root:x:0:\n{USER}:x:{UID}:\nmessagebus:x:101:\n")
        (etc / "shadow").write_text("")
        (etc / "machine-id").write_text("uninitialized\n")
        units = etc / "systemd" / "system"
        units.mkdir(parents=True)
        (units / "default.target").symlink_to("/usr/lib/systemd/system/multi-user.target")
        for name in ("systemd-timesyncd", "systemd-networkd", "systemd-resolved", "systemd-udevd"):
            (units / f"{name}.service").symlink_to("/dev/null")


class _Inside(LocalTransport):
    """Runs commands in the machine as its user, who owns all files."""

    def __init__(self, machine: Machine) -> None:
        self._enter = machine.folder / "python"
        self._machine = machine
        super().__init__(machine.home / ".edgekit", "machine", str(self._enter))
        self._root.mkdir(exist_ok=True)  # else the first command makes it, as root
        self._give()

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        self._enter.write_text(self._machine.enter_script())
        self._enter.chmod(0o755)
        return super().run(command, deadline=deadline, on_line=on_line)

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        super().put(data, path, deadline=deadline, on_bytes=on_bytes)
        self._give()

    def _give(self) -> None:
        for path in (self._root, *self._root.rglob("*")):
            os.lchown(path, UID, UID)


def _groups() -> Path | None:
    """A writable cgroup2 mount point."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        words = line.split()
        if words[2] == "cgroup2" and "rw" in words[3].split(","):
            return Path(words[1])
    return None
