"""A thousand boards in one or two processes: SSH servers on loopback over real release folders.

Each board has its own folder, host key and port. Agent commands run the real agent in a process
forked from a preloaded one (see agent_forks.py); all other commands go to a shell. Tests control a
board's behavior through files in its folder: `asleep` (connections are closed at once) and `dies`
(contains a word; the board falls asleep when a command containing it arrives).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from edgekit.host.deploy.inventory import BoardEntry
from tests.support.agent_forks import AgentForks, start_forks
from tests.support.sshd import make_key

_TREE = Path(__file__).parents[2]
_ROOT = ".edgekit"
_BACKLOG = 16


@dataclass(frozen=True)
class SimulatedBoard:
    """One board of a farm; `home` is its user's home directory."""

    folder: Path
    port: int
    host_key: str

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def root(self) -> Path:
        return self.folder / _ROOT

    @property
    def asleep(self) -> Path:
        return self.folder / "asleep"

    @property
    def dies(self) -> Path:
        return self.folder / "dies"

    @property
    def lie(self) -> Path:
        """JSON fields that override the board's probe results."""
        return self.folder / "lie"

    def applied(self) -> list[str]:
        """The outcome of each `apply`, as `END RELEASE`."""
        log = self.folder / "applied"
        return log.read_text().splitlines() if log.exists() else []


@dataclass(frozen=True)
class Farm:
    """The running boards, the login key, and the processes that host them."""

    boards: tuple[SimulatedBoard, ...]
    identity: Path
    processes: tuple[subprocess.Popen[bytes], ...]

    def cpu_seconds(self) -> float:
        """Total CPU time of all boards, including finished child processes."""
        groups = {str(process.pid) for process in self.processes}
        ticks = 0
        for file in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # already exited
                fields = file.read_text(errors="replace").rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15])) if fields[2] in groups else 0
        return ticks / os.sysconf("SC_CLK_TCK")

    def entries(self, profile: str = "local", **labels: str) -> list[BoardEntry]:
        """Inventory entries for the boards."""
        return [
            BoardEntry(
                b.name,
                profile,
                host="127.0.0.1",
                port=b.port,
                user="edgekit",
                identity=self.identity,
                host_key=b.host_key,
                labels=labels,
            )
            for b in self.boards
        ]


@contextlib.contextmanager
def running_farm(folder: Path, count: int, processes: int = 1) -> Iterator[Farm]:
    """`count` boards below `folder`, which may already exist from an earlier farm."""
    folder.mkdir(parents=True, exist_ok=True)
    make_key(folder / "identity")
    names = [f"sim{i:04d}" for i in range(count)]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for part in range(processes):
            command = [sys.executable, "-m", __name__, str(folder), *names[part::processes]]
            begun = subprocess.Popen(command, cwd=_TREE, stdout=subprocess.PIPE, process_group=0)
            started.append(begun)
        found: dict[str, SimulatedBoard] = {}
        for process in started:
            assert process.stdout is not None
            for name, port, key in json.loads(process.stdout.readline()):
                found[name] = SimulatedBoard(folder / name, port, key)
        yield Farm(tuple(found[name] for name in names), folder / "identity", tuple(started))
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


class _Server(asyncssh.SSHServer):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        if (self._folder / "asleep").exists():
            conn.abort()


class _Board:
    def __init__(self, folder: Path, forks: AgentForks) -> None:
        self.folder = folder
        self._forks = forks

    async def handle(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        line = process.command or ""
        dies = self.folder / "dies"
        if dies.exists() and dies.read_text() in line:
            (self.folder / "asleep").touch()
            process.channel.get_connection().abort()
            return
        words = shlex.split(line)
        script, rest = words[3], words[5:]
        if "readlink -f" in script:
            self._tell_python(process)
        elif rest[:1] == [sys.executable] and "--root" in rest:
            await self._run_agent(process, rest[5:])
        else:
            await self._run_shell(process, line)

    def _tell_python(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        root = self.folder / _ROOT
        root.mkdir(mode=0o700, exist_ok=True)
        mark = b"edgekit-runs:1\n"
        process.stderr.write(mark)
        process.stdout.write(mark + f"{root}\n{sys.executable}\n".encode())
        process.exit(0)

    async def _run_agent(
        self, process: asyncssh.SSHServerProcess[bytes], arguments: Sequence[str]
    ) -> None:
        mark = b"edgekit-runs:1\n"  # process 1, never killed: commands outlive a cut link
        process.stderr.write(mark)
        process.stdout.write(mark)
        code = await self._forks.run(
            self.folder, arguments, process.stdout.write, process.stderr.write
        )
        process.exit(code if code >= 0 else 128 - code)

    async def _run_shell(self, process: asyncssh.SSHServerProcess[bytes], line: str) -> None:
        child = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            line,
            cwd=self.folder,
            env={"HOME": str(self.folder), "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await child.communicate()
        process.stdout.write(out)
        process.stderr.write(err)
        process.exit(child.returncode or 0)


async def _serve(folder: Path, names: Sequence[str], forks: AgentForks) -> None:
    await forks.attach()
    login = asyncssh.import_authorized_keys((folder / "identity.pub").read_text())
    shown = []
    for name in names:
        home = folder / name
        home.mkdir(mode=0o700, exist_ok=True)
        key_file = home / "host_key"
        if not key_file.exists():
            asyncssh.generate_private_key("ssh-ed25519").write_private_key(key_file)
        key = asyncssh.read_private_key(key_file)
        board = _Board(home, forks)
        port_file = home / "port"
        port = int(port_file.read_text()) if port_file.exists() else 0
        server = await asyncssh.listen(
            "127.0.0.1",
            port,
            server_factory=lambda home=home: _Server(home),
            server_host_keys=[key],
            authorized_client_keys=login,
            process_factory=board.handle,
            sftp_factory=True,
            encoding=None,
            line_editor=False,
            kex_algs=["curve25519-sha256", "curve25519-sha256@libssh.org"],
            encryption_algs=["aes128-gcm@openssh.com"],
            backlog=_BACKLOG,
        )
        port_file.write_text(str(server.get_port()))
        shown.append((name, server.get_port(), key.export_public_key().decode().strip()))
    print(json.dumps(shown), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2:], start_forks()))
