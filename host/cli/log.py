"""Log file of bounded size in the state folder; also goes to stderr with --verbose.

Warnings always go to stderr, and so do errors after which a server goes on; `main` prints the one
that ends a command.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

_BYTES = 1 << 20
_OLDER = 2  # rotated files kept in addition to the current one
_QUIET = ("-h", "--help", "--version", "--install-completion", "--show-completion")


def log_file() -> Path:
    """The path of the log."""
    from edgekit.host.common.paths import state_folder

    return state_folder() / "edgekit.log"


def start(arguments: Sequence[str], verbose: bool) -> None:
    """Starts the log of one command line; help requests are not logged."""
    import os

    if not arguments or any(a in _QUIET for a in arguments) or "_EDGEKIT_COMPLETE" in os.environ:
        return
    import logging

    logger = logging.getLogger("edgekit")
    for old in tuple(logger.handlers):
        logger.removeHandler(old)
        old.close()
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    # A dry run writes nothing, not even a log.
    logger.addHandler(logging.NullHandler() if "--dry-run" in arguments else _file_handler())
    shown = logging.StreamHandler(sys.stderr)
    shown.setLevel(logging.DEBUG if verbose else logging.WARNING)
    shown.setFormatter(_one_line_formatter())
    shown.addFilter(lambda record: record.levelno < logging.ERROR or record.name != logger.name)
    logger.addHandler(shown)
    logger.info("edgekit %s", shlex.join(arguments))


def _one_line_formatter() -> logging.Formatter:
    import logging

    class OneLine(logging.Formatter):
        """Leaves tracebacks to the file."""

        def format(self, record: logging.LogRecord) -> str:
            return f"edgekit: {record.getMessage()}"

    return OneLine()


def _file_handler() -> logging.Handler:
    """The handler for the log file, or a null handler if it cannot be created."""
    import logging
    from logging.handlers import RotatingFileHandler

    class Patient(RotatingFileHandler):
        """Ignores write errors: a full disk must not stop the command."""

        def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
            del record

    try:
        path = log_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = Patient(path, maxBytes=_BYTES, backupCount=_OLDER, delay=True)
    except OSError:
        return logging.NullHandler()
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
    )
    return handler


def failed(error: Exception, code: int) -> None:
    """Logs the error that ended a command, with its traceback, if `start` opened a log; `start`
    keeps the records of this logger from stderr."""
    import logging

    logger = logging.getLogger("edgekit")
    if logger.handlers:  # without one, Python would print the traceback
        logger.error("exit code %d", code, exc_info=error)
