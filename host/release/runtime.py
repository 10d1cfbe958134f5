"""Calls the board's runtime: JSON documents in, named errors out."""

from __future__ import annotations

import hashlib
import logging
import re
import signal
import zlib

from edgekit.host.bundle.pyz import runtime_pyz
from edgekit.host.decode import NotAnAnswerError
from edgekit.host.errors import (
    BusyError,
    EdgekitError,
    IncompatibleError,
    InputError,
    RolledBackError,
    TransferError,
)
from edgekit.host.release.answers import Document, decode_answer
from edgekit.host.text import printable
from edgekit.host.transport import Completed, LinkLostError, OnLine, Transport

_log = logging.getLogger(__name__)

QUICK_SECONDS = 60.0
SLOWEST_BYTES_PER_SECOND = 4000  # a serial console of 57600 baud
# Python runs a damaged zip as far as it can read it, so the bytes are checked before. This leaves
# with exit code 1 and no answer, as Python does when the file is missing.
_CHECKED = (
    "import sys,zlib,zipimport;p,s=sys.argv[1:3];d=open(p,'rb').read();"
    "'%d.%d'%(len(d),zlib.crc32(d))==s or sys.exit('expected the runtime, found it damaged');"
    "del d,sys.argv[0],sys.argv[1];sys.path.insert(0,p);"
    "exec(zipimport.zipimporter(p).get_code('__main__'))"
)
_NOTE = "note "  # begins a line about what the board found odd and mended
_NAME = re.compile("[a-z0-9][a-z0-9_-]{0,31}")
_ERRORS: dict[str, type[EdgekitError]] = {
    "input": InputError,
    "incompatible": IncompatibleError,
    "transfer": TransferError,
    "busy": BusyError,
    "rolled_back": RolledBackError,
}


def root_of(name: str) -> str:
    """The folder of the model `name` below the board's; that of the default one is the board's own.

    InputError if no folder may have that name.
    """
    if not name:
        return "."
    if not _NAME.fullmatch(name):
        raise InputError(
            f"expected a name of at most 32 small letters, digits, '-' and '_', found {name[:40]!r}"
        )
    return f"named/{name}"


class BoardRuntime:
    """This kit's runtime on a board, sent there when it is first needed; `name` says which of the
    models that are deployed side by side it is about.

    A release is used through the runtime it brought along, so that kit and board need not have
    the same version.
    """

    def __init__(self, transport: Transport, name: str = "") -> None:
        self._transport = transport
        self.root = root_of(name)
        self._pyz = runtime_pyz()
        self._path = f"runtime/{hashlib.sha256(self._pyz).hexdigest()[:16]}.pyz"
        self._sum = f"{len(self._pyz)}.{zlib.crc32(self._pyz)}"

    def call(
        self, *arguments: str, deadline: float = QUICK_SECONDS, on_line: OnLine | None = None
    ) -> Document:
        """One command of this kit's runtime. Raises the error that the board reports, or
        LinkLostError if it did what it was to do and its answer did not arrive."""
        start = ("-c", _CHECKED, self._path, self._sum)
        done = self._run(start, arguments, deadline, on_line)
        if _is_broken(done):
            _log.info("board %s: sending this kit's runtime", self._transport.board)
            seconds = QUICK_SECONDS + len(self._pyz) / SLOWEST_BYTES_PER_SECOND
            self._transport.put(self._pyz, self._path, deadline=seconds)
            done = self._run(start, arguments, deadline, on_line)
        return self._document(arguments[arguments[0] == "release"], done)

    def call_release(self, *arguments: str, deadline: float) -> Document:
        """One command of the current release's own runtime, once this kit's found it whole.

        InputError if there is none, RolledBackError or TransferError if it is damaged.
        """
        return self.call("release", *arguments, deadline=deadline)

    def _run(
        self,
        start: tuple[str, ...],
        arguments: tuple[str, ...],
        deadline: float,
        on_line: OnLine | None,
    ) -> Completed:
        # -I -S: nothing of the board's own Python set-up; it also starts faster.
        command = [self._transport.python, "-I", "-S", *start, "--root", self.root, *arguments]
        _log.info("board %s: %s", self._transport.board, " ".join(arguments))
        done = self._transport.run(command, deadline=deadline, on_line=on_line)
        _log.debug("board %s: exit code %d", self._transport.board, done.exit_code)
        return done

    def _document(self, name: str, done: Completed) -> Document:
        board = self._transport.board
        for line in done.stderr.decode("utf-8", "replace").splitlines():
            if line.startswith(_NOTE):
                _log.warning("board '%s': %s", board, printable(line[len(_NOTE) :]))
        if done.exit_code == 0 and not done.stdout:
            raise LinkLostError(
                f"board '{board}': {name}: expected an answer, found none; see: edgekit status"
            )
        try:
            document, error = decode_answer(done.stdout, name)
        except NotAnAnswerError as odd:
            found = "" if ", found" in str(odd) else f", found {_how_it_ended(done)}"
            raise TransferError(
                f"board '{board}': {name}: {odd}{found}; see what else the board does, try again"
            ) from None
        if error is not None:
            kind = _ERRORS.get(error["kind"], EdgekitError)
            raised = kind(f"board '{board}': {error['message']}")
            if isinstance(raised, RolledBackError):
                raised.log = error.get("log", "")
            if isinstance(raised, BusyError):
                raised.holder = error.get("holder", "")
            raise raised
        return document


def _is_broken(done: Completed) -> bool:
    """The file is missing or damaged, and so has nothing to say."""
    return done.exit_code == 1 and not done.stdout


def _how_it_ended(done: Completed) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    last = f": {printable(lines[-1], 200)}" if lines else ""
    if done.exit_code >= 0:
        return f"exit code {done.exit_code}{last}"
    try:
        return f"it killed by {signal.Signals(-done.exit_code).name}{last}"
    except ValueError:
        return f"it killed by signal {-done.exit_code}{last}"
