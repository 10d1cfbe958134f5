"""The device agent for many simulated boards: loaded once, forked for each command.

Forking saves only the interpreter start-up. Each command gets its folder, arguments and outputs as
it would from a shell, and all disk access, locking and use of ssh-keygen is the real agent's. The
health check, a separate Python process on a real board, is a fork as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_MOST = 1 << 16
_real_run = subprocess.run


class AgentForks:
    """Client of the forking process; see `start_forks`."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    async def attach(self) -> None:
        """Must be called in the event loop before the first `run`."""
        self._turn = asyncio.Lock()

    async def run(
        self,
        home: Path,
        arguments: Sequence[str],
        on_out: Callable[[bytes], Any],
        on_error: Callable[[bytes], Any],
    ) -> int:
        """Run one agent command on the board in `home`; return its exit code, or minus the signal
        that ended it. `arguments` are the path and checksum of the runtime, then the agent's own
        arguments."""
        ends = [os.pipe() for _ in range(3)]
        request = json.dumps([str(home), *arguments]).encode()
        async with self._turn:
            socket.send_fds(self._line, [request], [write for _, write in ends])
        for _, write in ends:
            os.close(write)
        said = bytearray()
        sinks = (on_out, on_error, said.extend)
        await asyncio.gather(
            *(_drain(read, sink) for (read, _), sink in zip(ends, sinks, strict=True))
        )
        return int(said)


async def _drain(descriptor: int, sink: Callable[[bytes], Any]) -> None:
    """Pass on everything read until the other end closes."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    os.set_blocking(descriptor, False)

    def ready() -> None:
        if data := os.read(descriptor, _MOST):
            with contextlib.suppress(BrokenPipeError):  # the host is gone
                sink(data)
        else:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            ended.set()

    loop.add_reader(descriptor, ready)
    await ended.wait()


def start_forks() -> AgentForks:
    """Start the forking process, which ends with this one. Call before any thread starts."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            ours.close()
            _load()
            _fork_for_ever(theirs)
        finally:
            os._exit(0)
    theirs.close()
    return AgentForks(ours)


def _load() -> None:
    """Import everything the commands need, so that forks need not."""
    from edgekit.device.runtime.agent import (  # noqa: F401
        bench,
        c_samples,
        commands,
        files,
        golden,
        model,
        probe,
        recovery,
        release,
        sampler,
        session,
        signing,
        status,
        store,
    )

    subprocess.run = _run_forked
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphaned lock holders end up here


def _fork_for_ever(line: socket.socket) -> None:
    wake, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking)
    running: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([line, wake], [], [])
        if wake in readable:
            os.read(wake, _MOST)
            _reap(running)
        if line in readable:
            request, descriptors, _, _ = socket.recv_fds(line, _MOST, 3)
            if not request:
                return
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(line.detach())
                os.close(descriptors[2])
                for other in running.values():
                    os.close(other)
                _be_agent(json.loads(request), descriptors[0], descriptors[1])
            running[pid] = descriptors[2]
            os.close(descriptors[0])
            os.close(descriptors[1])


def _reap(running: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if (descriptor := running.pop(pid, None)) is not None:
                with contextlib.suppress(OSError):
                    os.write(descriptor, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(descriptor)


def _be_agent(request: Sequence[str], out: int, error: int) -> None:
    """Do what the `python -c` program in host/deploy/release/runtime.py does; never returns."""
    home, path, total, *arguments = request
    code = 1
    try:
        os.dup2(out, 1)
        os.dup2(error, 2)
        os.close(out)
        os.close(error)
        os.umask(0o077)
        os.environ["HOME"] = home
        os.chdir(Path(home, ".edgekit"))
        data = Path(path).read_bytes()
        if f"{len(data)}.{zlib.crc32(data)}" == total:
            sys.argv = [path, *arguments]
            code = _agent(Path(home), arguments)
    except FileNotFoundError:
        pass  # runtime missing: Python exits with 1 and an empty stdout
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _agent(home: Path, arguments: Sequence[str]) -> int:
    from edgekit.device.runtime.agent import commands, probe, release

    if (home / "lie").exists():
        lies = json.loads((home / "lie").read_text())
        probe.probe = _lying(probe.probe, lies)
    real_apply = release.apply

    def noted_apply(*given: Any) -> Any:
        end = "failed"
        try:
            outcome = real_apply(*given)
            end = outcome.end
            return outcome
        finally:
            with (home / "applied").open("a") as log:
                log.write(f"{end} {given[1]}\n")

    release.apply = noted_apply
    return commands.main(list(arguments))


def _lying(probe: Callable[..., Any], lies: dict[str, Any]) -> Callable[..., Any]:
    fixed = {key: tuple(v) if isinstance(v, list) else v for key, v in lies.items()}
    return lambda *given: replace(probe(*given), **fixed)


def _run_forked(command: Sequence[str], *given: Any, **options: Any) -> Any:
    """subprocess.run, except that the runtime's own processes are forked."""
    if list(command[1:3]) != ["-I", "-S"]:
        return _real_run(command, *given, **options)
    ends = [os.pipe(), os.pipe()]
    pid = os.fork()
    if pid == 0:
        from edgekit.device.runtime.agent import commands

        code = 1
        try:
            for (_, write), number in zip(ends, (1, 2), strict=True):
                os.dup2(write, number)
            sys.argv = list(command[3:])
            code = commands.main(list(command[4:]))
            sys.stdout.flush()
        finally:
            os._exit(code)
    outputs = []
    for _, write in ends:
        os.close(write)
    for read, _ in ends:
        with os.fdopen(read, "rb") as file:
            outputs.append(file.read())
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return subprocess.CompletedProcess(list(command), code, outputs[0], outputs[1])
