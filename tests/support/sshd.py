"""An OpenSSH server on a loopback port with its own keys and home directory."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.host.deploy.transport import Transport
from tests.support.patience import AMPLE

SSHD = "/usr/sbin/sshd"
_SFTP_SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server")
_START_SECONDS = AMPLE
SECONDS = AMPLE

# Commands and SFTP both start through this script. It keeps the account's own home untouched, and a
# file size limit simulates a full disk (without the trap the kernel would kill the server).
_LOGIN = """\
#!/bin/sh
HOME={home}; export HOME
cd "$HOME" || exit 1
{before}
exec sh -c "$SSH_ORIGINAL_COMMAND"
"""

_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {host_key}
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PrintMotd no
LogLevel VERBOSE
Subsystem sftp {sftp}
ForceCommand {folder}/login
SetEnv SHLVL=2
"""
# (under sshd, bash reads the account's .bashrc, but only in a top-level shell)


@dataclass
class Sshd:
    """A running server; `home` is its user's home directory."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] = field(repr=False)
    user: str = field(default_factory=getpass.getuser)
    host: str = "127.0.0.1"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def identity(self) -> Path:
        return self.folder / "identity"

    @property
    def host_key(self) -> str:
        """The line to pin: type and key."""
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def limit_files(self, kib: int | None) -> None:
        """From the next connection on, no file can grow beyond `kib`; None lifts the limit."""
        self.before_login("" if kib is None else f"trap '' XFSZ; ulimit -f {kib * 2}")

    def before_login(self, commands: str) -> None:
        """Shell commands to run at the start of every session from now on."""
        _write_login(self.folder, commands)

    def cut(self) -> None:
        """Kill the processes of all connections; the server keeps listening."""
        for pid in _children(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self.cut()
        self.process.terminate()
        self.process.wait(_START_SECONDS)


def start_sshd(folder: Path, host_key_type: str = "ed25519") -> Sshd:
    """Start a server that admits the current user with the key `identity`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "home").mkdir(mode=0o700, exist_ok=True)
    make_key(folder / "host_key", host_key_type)
    make_key(folder / "identity")
    shutil.copy(folder / "identity.pub", folder / "authorized_keys")
    _write_login(folder, "")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd does not start without it
    for _ in range(5):  # another process may take the free port before sshd binds it
        server = _start(folder, _free_port())
        if server is not None:
            return server
    raise RuntimeError(f"sshd did not start: {(folder / 'log').read_text()}")


def works(transport: Transport) -> bool:
    return transport.run(["echo", "yes"], deadline=SECONDS).stdout == b"yes\n"


@contextlib.contextmanager
def running_sshd(folder: Path, host_key_type: str = "ed25519") -> Iterator[Sshd]:
    server = start_sshd(folder, host_key_type)
    try:
        yield server
    finally:
        server.close()


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> None:
    """Create a key pair at `path` and `path`.pub."""
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "test", "-f", str(path)]
    if not path.exists():
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def _start(folder: Path, port: int) -> Sshd | None:
    sftp = next(path for path in _SFTP_SERVERS if Path(path).exists())
    text = _CONFIG.format(folder=folder, port=port, host_key=folder / "host_key", sftp=sftp)
    (folder / "config").write_text(text)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(folder / "config")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    end = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return Sshd(folder, port, process)
        time.sleep(0.005)
    process.kill()
    process.wait()
    return None


def _write_login(folder: Path, before: str) -> None:
    login = folder / "login"
    new = folder / "login.new"
    new.write_text(_LOGIN.format(home=shlex.quote(str(folder / "home")), before=before))
    new.chmod(0o700)
    new.replace(login)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _children(pid: int) -> list[int]:
    """Processes of each connection: sshd's children and grandchildren."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # may have exited
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                found += [child, *_children(child)]
    return found
