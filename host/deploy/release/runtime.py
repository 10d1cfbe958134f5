"""Calls the board's runtime: JSON documents in, named errors out."""

from __future__ import annotations

import functools
import hashlib
import logging
import re
import signal
import zlib

from edgekit.host.common.decode import NotAnAnswerError
from edgekit.host.common.text import printable
from edgekit.host.deploy.bundle.pyz import runtime_pyz
from edgekit.host.deploy.release.answers import Document, ErrorAnswer, decode_answer
from edgekit.host.deploy.transport import Completed, LinkLostError, OnLine, Stream, Transport
from edgekit.host.errors import (
    BusyError,
    EdgekitError,
    IncompatibleError,
    InputError,
    RolledBackError,
    TransferError,
)

_log = logging.getLogger(__name__)

QUICK_SECONDS = 60.0
SLOWEST_BYTES_PER_SECOND = 4000  # a serial console at 57600 baud
# Python executes a damaged zip as far as it is readable, so check the bytes first. A mismatch exits
# with code 1 and no answer, as Python does when the file is missing.
_CHECKED = (
    "import sys,zlib,zipimport;p,s=sys.argv[1:3];d=open(p,'rb').read();"
    "'%d.%d'%(len(d),zlib.crc32(d))==s or sys.exit('expected the runtime, found it damaged');"
    "del d,sys.argv[0],sys.argv[1];sys.path.insert(0,p);"
    "exec(zipimport.zipimporter(p).get_code('__main__'))"
)
_NOTE = "note "  # prefix of a line about an anomaly that the board repaired
_DEFAULT = "current"  # the name by which applications call the unnamed model
_LACKING = re.compile(r"^(?:ModuleNotFoundError|ImportError): (.+)\Z", re.MULTILINE)
_NAME = re.compile("[a-z0-9][a-z0-9_-]{0,31}")
_MOST_ERROR = 1 << 16  # bytes of an error document
_SOON = 10.0  # for a program's last output and its exit
_ERRORS: dict[str, type[EdgekitError]] = {
    "input": InputError,
    "incompatible": IncompatibleError,
    "transfer": TransferError,
    "busy": BusyError,
    "rolled_back": RolledBackError,
}


def root_of(name: str) -> str:
    """Returns the root of model `name` below the board's; the unnamed default model uses the
    board's root.

    Raises InputError if `name` is not a valid folder name.
    """
    check_name(name or None)
    return f"named/{name}" if name else "."


def check_name(name: str | None) -> None:
    """InputError if `name` is invalid; an empty name must not silently select the default model."""
    if name is not None and (not _NAME.fullmatch(name) or name == _DEFAULT):
        raise InputError(
            "expected a name of 1 to 32 small letters, digits, '-' and '_' other than "
            f"'{_DEFAULT}', found {name[:40]!r}"
        )


class BoardCalls:
    """A board's transport and runtime; the runtime is uploaded on first use.

    `model_name` selects one of several models deployed side by side; "" is the unnamed one. A
    release is run by the runtime it was deployed with, so host and board may have different
    versions. Code outside this package uses the subclass `deploy.board.Board`.
    """

    def __init__(self, transport: Transport, model_name: str = "") -> None:
        self.transport = transport
        self.model_name = model_name
        self.root = root_of(model_name)

    @property
    def name(self) -> str:
        """The board's name."""
        return self.transport.board

    def call(
        self, *arguments: str, deadline: float = QUICK_SECONDS, on_line: OnLine | None = None
    ) -> Document:
        """Runs one command of this edgekit's runtime.

        Raises the error that the board reports, or LinkLostError if the command completed but its
        answer did not arrive.
        """
        done = self._run(arguments, deadline, on_line)
        if _is_broken(done):
            self._send_runtime()
            done = self._run(arguments, deadline, on_line)
        return document_of(self.name, arguments[arguments[0] == "release"], done)

    def call_release(self, *arguments: str, deadline: float) -> Document:
        """Runs one command of the current release's own runtime, after this edgekit's runtime has
        verified it.

        InputError if there is no release, RolledBackError or TransferError if it is damaged.
        """
        return self.call("release", *arguments, deadline=deadline)

    def talk_to_release(self, *arguments: str, magic: bytes) -> Stream:
        """Starts an interactive command of the release; returns its stream once it has sent
        `magic`.

        Raises the error that the board sends instead.
        """
        stream, done = self._try_to_talk(arguments, magic)
        if done and _is_broken(done):
            self._send_runtime()
            stream, done = self._try_to_talk(arguments, magic)
        if done is None:
            return stream
        document_of(self.name, arguments[0], done)
        raise EdgekitError(
            f"board '{self.name}': {arguments[0]}: expected a session, found another "
            "answer; deploy again"
        )

    def _try_to_talk(
        self, arguments: tuple[str, ...], magic: bytes
    ) -> tuple[Stream, Completed | None]:
        """Starts a command of the release; returns its exit status if it did not send `magic`."""
        command = self._build_command(("release", *arguments))
        stream = self.transport.open(command, deadline=QUICK_SECONDS)
        try:
            said = b""
            while said != magic and said == magic[: len(said)]:
                if not (data := stream.receive(len(magic) - len(said), deadline=QUICK_SECONDS)):
                    break
                said += data
            if said == magic:
                return stream, None
            while len(said) < _MOST_ERROR and (data := stream.receive(1 << 16, deadline=_SOON)):
                said += data
        except BaseException:
            stream.close(deadline=0)
            raise
        ended = stream.close(deadline=_SOON)
        return stream, Completed(ended.exit_code, said, ended.stderr)

    def _send_runtime(self) -> None:
        _log.info("board %s: sending this edgekit's runtime", self.name)
        pyz = runtime_pyz()
        seconds = QUICK_SECONDS + len(pyz) / SLOWEST_BYTES_PER_SECOND
        self.transport.put(pyz, _runtime_file()[0], deadline=seconds)

    def _build_command(self, arguments: tuple[str, ...]) -> list[str]:
        # -I -S: ignore the board's own Python setup; it also starts faster.
        own = ["-I", "-S", "-c", _CHECKED, *_runtime_file()]
        _log.info("board %s: %s", self.name, " ".join(arguments))
        return [self.transport.python, *own, "--root", self.root, *arguments]

    def _run(
        self, arguments: tuple[str, ...], deadline: float, on_line: OnLine | None
    ) -> Completed:
        command = self._build_command(arguments)
        done = self.transport.run(command, deadline=deadline, on_line=on_line)
        _log.debug("board %s: exit code %d", self.name, done.exit_code)
        return done


@functools.cache
def _runtime_file() -> tuple[str, str]:
    """Returns the runtime's path on a board, and its size and checksum."""
    pyz = runtime_pyz()
    path = f"runtime/{hashlib.sha256(pyz).hexdigest()[:16]}.pyz"
    return path, f"{len(pyz)}.{zlib.crc32(pyz)}"


def document_of(board: str, name: str, done: Completed) -> Document:
    """Parses a runtime command's answer; raises the error that the board reports."""
    tell_notes(board, done)
    if done.exit_code == 0 and not done.stdout:
        raise LinkLostError(
            f"board '{board}': {name}: expected an answer, found none; see: edgekit status"
        )
    try:
        document, error = decode_answer(done.stdout, name)
    except NotAnAnswerError as odd:
        if missing := _LACKING.search(done.stderr.decode("utf-8", "replace").strip()):
            raise IncompatibleError(
                f"board '{board}': expected Python with its standard library, found: "
                f"{printable(missing[1], 200)}; install it there, on Debian: apt-get install "
                "python3"
            ) from None
        found = "" if ", found" in str(odd) else f", found {how_it_ended(done)}"
        raise TransferError(
            f"board '{board}': {name}: {odd}{found}; check what else runs on the board, then try "
            "again"
        ) from None
    if error is not None:
        raise reported(board, error)
    return document


def tell_notes(board: str, done: Completed) -> None:
    """Logs anomalies that the board repaired."""
    for line in done.stderr.decode("utf-8", "replace").splitlines():
        if line.startswith(_NOTE):
            _log.warning("board '%s': %s", board, printable(line[len(_NOTE) :]))


def reported(board: str, error: ErrorAnswer) -> EdgekitError:
    """Converts an error that the board reports."""
    raised = _ERRORS.get(error["kind"], EdgekitError)(f"board '{board}': {error['message']}")
    if isinstance(raised, RolledBackError):
        raised.log = error.get("log", "")
    if isinstance(raised, BusyError):
        raised.holder = error.get("holder", "")
    return raised


def _is_broken(done: Completed) -> bool:
    """Whether the runtime file is missing or damaged and therefore gave no answer."""
    return done.exit_code == 1 and not done.stdout


def how_it_ended(done: Completed) -> str:
    """Describes the exit code or signal and the last line of standard error."""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    last = f": {printable(lines[-1], 200)}" if lines else ""
    if done.exit_code >= 0:
        return f"exit code {done.exit_code}{last}"
    try:
        return f"it killed by {signal.Signals(-done.exit_code).name}{last}"
    except ValueError:
        return f"it killed by signal {-done.exit_code}{last}"
