"""A board over SSH: one session per command, files over SFTP, no listening process left.

Idempotent operations are retried: transfers resume where a cut link left off, over a new login,
until the deadline. A command is retried only while it cannot have started; once the board was asked
to run it, a cut link raises LinkLostError and the caller, who knows the command's effects, decides.
Only one thread may make calls at a time; `close` is safe from any thread and ends them. See
docs/boards.md.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import paramiko
from tenacity import Retrying, retry_if_exception

from edgekit.host.common.text import printable
from edgekit.host.deploy.transport.base import (
    CHECK_PATH,
    LARGEST_OUTPUT,
    Completed,
    LinkLostError,
    OnBytes,
    OnLine,
    name_of,
)
from edgekit.host.deploy.transport.sftp import NotSftpError, Sftp, SftpEndedError, SftpError
from edgekit.host.deploy.transport.ssh_command import (
    FloodError,
    NoStatusError,
    NotStartedError,
    Order,
    RemoteCommand,
    StillRunningError,
    find_python,
    kill_line,
    make_folder,
    order_error,
    prefix_hash,
    start,
)
from edgekit.host.deploy.transport.ssh_config import SshTarget
from edgekit.host.deploy.transport.ssh_files import (
    CallbackError,
    Download,
    Patience,
    TransferProgress,
    Upload,
)
from edgekit.host.deploy.transport.ssh_link import (
    Deadline,
    SshLink,
    closed_after,
    fetch_host_key,
    open_link,
)
from edgekit.host.deploy.transport.ssh_sftp import (
    SFTP_SECONDS,
    STALL_SECONDS,
    command_session,
    serving_command,
    subsystem_session,
)
from edgekit.host.deploy.transport.ssh_stream import SshStream
from edgekit.host.errors import IncompatibleError, TransferError, UnreachableError

__all__ = ["SshTarget", "SshTransport", "fetch_host_key"]

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)

_PYTHON = "python3"  # placeholder for the interpreter found, which may have another name
_CONNECT_SECONDS = 30.0
_LONGEST_PATH = 4096
_GRACE_SECONDS = 3.0  # to kill a command that missed its deadline


class SshTransport:
    """Implements Transport below `root`, a folder in the home directory of the board's user.
    `most_output` bytes of each stream of a command are accepted."""

    def __init__(
        self,
        target: SshTarget,
        root: str = "~/.edgekit",
        connect_seconds: float = _CONNECT_SECONDS,
        most_output: int = LARGEST_OUTPUT,
        sftp_seconds: float = SFTP_SECONDS,
    ) -> None:
        self._target = target
        self._root = root
        self._folder = ""  # the path of `root`, known after the first connection, if it exists
        self._connect_seconds = connect_seconds
        self._most_output = most_output
        self._sftp_seconds = sftp_seconds
        self._link: SshLink | None = None
        self._sftp: Sftp | None = None
        self._serves = False  # our SFTP server runs there, in place of one that does not work
        self._python: str | None = None
        self._running: RemoteCommand | None = None
        self._closed = False

    @property
    def board(self) -> str:
        return self._target.board

    @property
    def python(self) -> str:
        """The interpreter's path after the first connection; before that, a placeholder that `run`
        resolves."""
        return self._python or _PYTHON

    def run(
        self, command: Sequence[str], *, deadline: float, on_line: OnLine | None = None
    ) -> Completed:
        end = Deadline(deadline)
        name = f"running '{name_of(command)}'"
        link, channel = self._new_channel(name, deadline)
        with self._abort_at_deadline(name, end, _GRACE_SECONDS):
            order = start(self._root, self._with_python(command))
            return self._run_order(link, channel, order, end, on_line)

    def open(self, command: Sequence[str], *, deadline: float) -> SshStream:
        end = Deadline(deadline)
        name = f"starting '{name_of(command)}'"
        link, channel = self._new_channel(name, deadline)
        with self._abort_at_deadline(name, end, _GRACE_SECONDS):
            order = start(self._root, self._with_python(command), create=False, reads=True)
            return self._start_stream(link, channel, order, end)

    def _new_channel(self, name: str, seconds: float) -> tuple[SshLink, Any]:
        """Retries: nothing has been asked of the board yet, so a cut link is harmless."""
        return self._run_retrying(name, seconds, lambda link, _: (link, _open_channel(link)))

    def _with_python(self, command: Sequence[str]) -> Sequence[str]:
        return [self.python, *command[1:]] if command[0] == _PYTHON else command

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        progress = TransferProgress(on_bytes)
        upload = Upload(path, data, progress)

        def attempt(link: SshLink, end: Deadline) -> None:
            try:
                with self._sftp_session(link, end) as sftp:
                    upload.attempt(sftp, functools.partial(self._prefix_hash, link, end))
            except SftpError:
                # Says so if the folder is read-only; SFTP rarely gives reasons.
                self._make_folder(link, end)
                raise

        self._run_transfer(f"sending {path!r}", path, deadline, progress, attempt)

    def get(self, path: str, *, deadline: float, on_bytes: OnBytes | None = None) -> bytes:
        progress = TransferProgress(on_bytes)
        download = Download(path, progress)

        def attempt(link: SshLink, end: Deadline) -> None:
            with self._sftp_session(link, end) as sftp:
                download.attempt(sftp)

        self._run_transfer(f"fetching {path!r}", path, deadline, progress, attempt)
        return bytes(download.data)

    def remove(self, path: str, *, deadline: float) -> None:
        order = start(self._root, ["rm", "-rf", "--", path])
        done = self._run_retrying(
            f"removing {path!r}",
            deadline,
            lambda link, end: self._run_order(link, _open_channel(link), order, end),
        )
        if done.exit_code != 0:
            raise TransferError(
                f"board '{self.board}': {path}: expected to remove it, found: "
                f"{done.stderr.decode('utf-8', 'replace').strip()}; remove it there by hand"
            )

    def close(self) -> None:
        """Ends the connection and the running command."""
        self._closed = True
        link, running = self._link, self._running
        if link is not None and running is not None:
            self._kill_group(link, running.group)
        self._drop_link()

    def _run_retrying(
        self,
        doing: str,
        seconds: float,
        act: Callable[[SshLink, Deadline], _T],
        progress: TransferProgress | None = None,
    ) -> _T:
        """Runs an idempotent operation, reconnecting whenever the link is cut."""
        end = Deadline(seconds)
        patience = Patience(end, progress or TransferProgress(None))
        self._closed = False

        def attempt() -> _T:
            with self._abort_at_deadline(doing, end):
                return act(self._ensure_link(end), end)

        retrying = Retrying(
            retry=retry_if_exception(lambda e: isinstance(e, LinkLostError) and not self._closed),
            stop=patience.is_over,
            wait=patience.pause,
            reraise=True,
        )
        try:
            return retrying(attempt)
        except LinkLostError as error:
            raise UnreachableError(str(error)) from None  # nothing irreversible can have happened

    def _run_transfer(
        self,
        doing: str,
        path: str,
        seconds: float,
        progress: TransferProgress,
        act: Callable[[SshLink, Deadline], None],
    ) -> None:
        try:
            self._run_retrying(doing, seconds, act, progress)
        except SftpError as error:
            raise TransferError(
                f"board '{self.board}': {path}: expected to read or write it, found: {error}; "
                f"{CHECK_PATH}"
            ) from None
        except CallbackError as error:
            raise error.cause from None
        except NotSftpError as error:
            raise TransferError(
                f"board '{self.board}': {error}; check what else runs on the board, then try again"
            ) from None

    @contextlib.contextmanager
    def _abort_at_deadline(self, doing: str, end: Deadline, grace: float = 0) -> Iterator[None]:
        """Aborts blocking calls at the deadline, and names the operation in the error."""
        try:
            with closed_after(end.left + grace, self._drop_link):
                yield
        except (
            paramiko.SSHException,
            EOFError,
            OSError,
            SftpEndedError,
            NoStatusError,
        ) as error:
            self._drop_link()
            if self._closed:
                raise UnreachableError(
                    f"board '{self.board}': expected to end {doing}, found the connection closed "
                    "from here; try again"
                ) from None
            if not end.left:
                raise UnreachableError(
                    f"board '{self.board}': expected an answer within {end.seconds:.3g} s while "
                    f"{doing}, found none; check power, cable and network"
                ) from None
            raise LinkLostError(
                f"board '{self.board}': expected an answer while {doing}, found the link cut "
                f"({str(error) or type(error).__name__}); check power, cable and network"
            ) from None

    def _ensure_link(self, end: Deadline) -> SshLink:
        """Returns the link, or a new one. After a first connection, an unreachable board counts as
        a cut."""
        if self._link is not None and self._link.is_up:
            return self._link
        self._drop_link()
        try:
            link = open_link(self._target, Deadline(min(self._connect_seconds, end.left)))
        except UnreachableError as error:
            if self._python is None:
                raise
            raise LinkLostError(str(error)) from None
        self._link = link
        if self._python is None:
            self._folder, self._python = self._find_python(link, end)
        return link

    def _find_python(self, link: SshLink, end: Deadline) -> tuple[str, str]:
        """Returns the board's folder, "" if it does not exist, and the interpreter."""
        before = Deadline(0.9 * end.left)  # a separate error, not that of a cut link
        found = self._run_order(link, _open_channel(link), find_python(self._root), before)
        if found.exit_code != 0:
            raise IncompatibleError(
                f"board '{self.board}': expected Python 3.9 or newer, found none; "
                "install it there, on Debian with: apt-get install python3"
            )
        lines = found.stdout.decode("utf-8", "surrogateescape").splitlines()
        if len(lines) != 2 or not _is_path(lines[1]) or (lines[0] and not _is_path(lines[0])):
            raise IncompatibleError(
                f"board '{self.board}': expected the paths of {self._root} and of Python, found "
                f"{printable(' '.join(lines), 200)!r}; see what its shell prints"
            )
        return lines[0], lines[1]

    def _make_folder(self, link: SshLink, end: Deadline) -> str:
        made = self._run_order(link, _open_channel(link), make_folder(self._root), end)
        return made.stdout.decode("utf-8", "surrogateescape").rstrip("\n")

    def _run_order(
        self,
        link: SshLink,
        channel: Any,
        order: Order,
        end: Deadline,
        on_line: OnLine | None = None,
    ) -> Completed:
        self._running = running = RemoteCommand(channel, on_line, self._most_output)
        try:
            channel.exec_command(order.line)
            channel.shutdown_write()  # login scripts that read go on
            return running.finish(end.left)
        except KeyboardInterrupt:
            self._kill_group(link, running.group)  # leaves no process behind
            raise
        except (NotStartedError, StillRunningError) as error:
            self._kill_group(link, running.group)
            raise order_error(self.board, order, end.seconds, error) from None
        except FloodError as error:
            self._kill_group(link, running.group)
            raise TransferError(
                f"board '{self.board}': expected '{order.name}' to print less, found: {error}; "
                "see what it does there, then try again"
            ) from None
        finally:
            self._running = None

    def _start_stream(self, link: SshLink, channel: Any, order: Order, end: Deadline) -> SshStream:
        channel.exec_command(order.line)
        stream = SshStream(channel, self.board, order.name, lambda g: self._kill_group(link, g))
        try:
            stream.begin(end.left)
        except (NotStartedError, StillRunningError) as error:
            raise order_error(self.board, order, end.seconds, error) from None
        return stream

    def _kill_group(self, link: SshLink, group: int | None) -> None:
        if group is None or not link.is_up:
            return
        with (
            contextlib.suppress(paramiko.SSHException, EOFError, OSError),
            closed_after(_GRACE_SECONDS, link.close),
        ):
            channel = _open_channel(link)
            channel.exec_command(kill_line(group))
            channel.recv_exit_status()
            channel.close()

    def _prefix_hash(self, link: SshLink, end: Deadline, path: str, size: int) -> str | None:
        order = start(self._root, prefix_hash(self.python, path, size))
        found = self._run_order(link, _open_channel(link), order, end)
        return found.stdout.decode("ascii", "replace").strip() if found.exit_code == 0 else None

    @contextlib.contextmanager
    def _sftp_session(self, link: SshLink, end: Deadline) -> Iterator[Sftp]:
        """Yields an SFTP session, reused for the next file unless requests were left unanswered."""
        try:
            if self._sftp is None:
                self._folder = self._folder or self._make_folder(link, end)
                self._sftp = self._open_sftp(link, end)
            yield self._sftp
        except SftpError:
            raise
        except BaseException:
            sftp, self._sftp = self._sftp, None
            if sftp is not None:
                sftp.close()
            raise

    def _open_sftp(self, link: SshLink, end: Deadline) -> Sftp:
        if not self._serves:
            try:
                return subsystem_session(_open_channel(link), self._folder, self._sftp_seconds)
            except NotSftpError as error:
                _LOG.info("board %s: %s; its Python serves files", self.board, error)
        channel = _open_channel(link)  # fails if the link itself ended
        order = start(self._root, serving_command(self.python), reads=True)
        sftp = command_session(self._start_stream(link, channel, order, end), self._folder)
        self._serves = True
        return sftp

    def _drop_link(self) -> None:
        link, self._link, self._sftp = self._link, None, None
        if link is not None:
            link.close()


def _is_path(text: str) -> bool:
    return text.startswith("/") and len(text) <= _LONGEST_PATH


def _open_channel(link: SshLink) -> Any:
    return link.board.open_session(timeout=STALL_SECONDS)
