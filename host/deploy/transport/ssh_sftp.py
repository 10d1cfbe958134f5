"""An SFTP session with a board: with its SFTP server, or with ours, which its Python runs.

Ours is for boards without such a server (dropbear), whose login scripts print something, which SFTP
does not tolerate, or whose SFTP server sees other folders than commands. It starts by a command
like any other, behind a mark.
"""

from __future__ import annotations

import functools
import importlib.resources
import zlib
from typing import Any

import paramiko

from edgekit.host.deploy.transport.base import Stream
from edgekit.host.deploy.transport.sftp import NotSftpError, Sftp, SftpEndedError
from edgekit.host.errors import UnreachableError

STALL_SECONDS = 20.0  # without an answer, a transfer's link counts as cut
SFTP_SECONDS = 5.0  # without a greeting of the board's server, ours is tried
_BOOT = (
    "import sys,zlib\n"
    "i=sys.stdin.buffer\n"
    "m={'__name__':'sftp_server'}\n"
    "exec(zlib.decompress(i.read(int(sys.argv[1]))),m)\n"
    "m['serve'](i,sys.stdout.buffer)\n"
)


def subsystem_session(channel: Any, folder: str, seconds: float) -> Sftp:
    """Starts the board's SFTP server on an open channel. NotSftpError if none works, or none
    answers within `seconds`."""
    channel.settimeout(seconds)
    try:
        channel.invoke_subsystem("sftp")
        sftp = Sftp(channel, folder)
        channel.settimeout(STALL_SECONDS)
        return sftp
    except (paramiko.SSHException, SftpEndedError):
        raise NotSftpError("expected an SFTP server, found none") from None
    except TimeoutError:  # a login script may have read the request
        channel.close()
        raise NotSftpError("expected an SFTP server, found one that does not answer") from None
    except NotSftpError:
        channel.close()
        raise


def serving_command(python: str) -> list[str]:
    """Returns the command that runs our server; it reads the program first."""
    return [python, "-I", "-S", "-c", _BOOT, str(len(_program()))]


def command_session(stream: Stream, folder: str) -> Sftp:
    """Returns a session with our server, whose command `stream` runs. NotSftpError if it does not
    start."""
    channel = _StreamChannel(stream)
    channel.sendall(_program())
    try:
        return Sftp(channel, folder)
    except SftpEndedError:
        ended = stream.close(deadline=STALL_SECONDS)
        why = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise NotSftpError(
            f"expected Python there to serve files, found {', '.join(why) or 'that it ended'}"
        ) from None


@functools.cache
def _program() -> bytes:
    agent = importlib.resources.files("edgekit.device") / "runtime" / "agent"
    return zlib.compress((agent / "sftp_server.py").read_bytes(), 9)


class _StreamChannel:
    """A command's stream as a channel; a stall is an OSError, as on a channel."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def sendall(self, data: bytes) -> None:
        try:
            self._stream.send(data, deadline=STALL_SECONDS)
        except UnreachableError as error:
            raise TimeoutError(str(error)) from None

    def recv(self, size: int) -> bytes:
        try:
            return self._stream.receive(size, deadline=STALL_SECONDS)
        except UnreachableError as error:
            raise TimeoutError(str(error)) from None

    def close(self) -> None:
        self._stream.close(deadline=0)
