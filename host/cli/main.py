"""Entry point of the `edgekit` command: from arguments to exit code.

Errors are printed as one line, never raised. The commands are imported only after Ctrl-C is
handled, so that interrupting the import prints no traceback.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

_INPUT = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141  # the shell's exit code for a program killed by SIGPIPE
_WINDOWS = (
    "edgekit: expected Linux or macOS, found Windows; run it in WSL 2: wsl --install, then install "
    "edgekit there"
)
_FLAGS = ("--debug", "--verbose")  # accepted anywhere on the command line


def main(arguments: list[str], app: typer.Typer | None = None) -> int:
    """Runs one command line; returns the exit code. Errors are printed, never raised.

    `app` has the commands (default: those of `edgekit`).
    """
    wanted = [a for a in arguments if a not in _FLAGS]
    closed = _open_closed_streams()
    try:
        code = _run_command(
            wanted, app, debug="--debug" in arguments, verbose="--verbose" in arguments
        )
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return _BROKEN_PIPE
    except OSError as error:  # from the flush: stdout is full or gone
        _forget_stdout()
        _print_error(f"stdout: {error.strerror or error}; the command itself succeeded")
        return _INPUT
    if closed and not code:
        _print_error("stdout: expected it open, found it closed; the command itself succeeded")
        return _INPUT
    return code


def _open_closed_streams() -> bool:
    """Opens standard streams that the caller closed (`>&-`), so that no file takes their place;
    returns whether stdout was closed."""
    closed = sys.stdout is None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if closed:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 (as long as the process)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    return closed


def _run_command(arguments: list[str], app: typer.Typer | None, debug: bool, verbose: bool) -> int:
    from edgekit.host.cli import log
    from edgekit.host.cli.app import app as edgekit
    from edgekit.host.cli.app import explain
    from edgekit.host.cli.meant import command_tree, repeated_option
    from edgekit.host.cli.renamed import renamed_command

    if now := renamed_command(arguments):
        _print_error(now)
        return _INPUT
    log.start(arguments, verbose)
    group = command_tree(app or edgekit)
    if twice := repeated_option(group, arguments):
        _print_error(twice)
        return _INPUT
    try:
        result = group.main(args=arguments, prog_name="edgekit", standalone_mode=False)
    except SystemExit as ended:  # raised by typer: completion, and a closed pipe
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None
        return ended.code if isinstance(ended.code, int) else 0
    except BrokenPipeError:
        raise
    except Exception as error:
        if debug:
            import traceback

            traceback.print_exc()
        line, code = explain(error, arguments)
        log.failed(error, code)
        _print_error(line)
        return code
    return result if isinstance(result, int) else 0


def _print_error(line: str) -> None:
    from edgekit.host.cli.output import note

    note(line, "edgekit:", "fail")


def _forget_stdout() -> None:
    """Redirects stdout to null, so that Python does not complain about unflushed data at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def run() -> None:
    """Entry point of the installed command."""
    if sys.platform == "win32":  # which lacks modules that the commands import
        print(_WINDOWS, file=sys.stderr)
        sys.exit(_INPUT)
    gc.set_threshold(10_000)  # imports leave no garbage, and looking for it takes time
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        sys.exit(main(sys.argv[1:]))  # background job: the shell set SIGINT to ignored
    signal.signal(signal.SIGINT, _exit_on_signal)
    import edgekit.host.cli.app  # noqa: F401

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    del number, frame
    os._exit(_INTERRUPTED)
