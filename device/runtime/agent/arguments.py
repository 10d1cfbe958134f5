"""Arguments of the runtime's commands, and what they refer to."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, NoReturn, Optional, Tuple

from edgekit.device.runtime.errors import Document, InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.manifest import Manifest
    from edgekit.device.runtime.agent.placement import Placement
    from edgekit.device.runtime.agent.release_files import ReleaseFiles
    from edgekit.device.runtime.agent.specs import PlacementRequest
    from edgekit.device.runtime.agent.store import Store

Run = Callable[[argparse.Namespace], Optional[Document]]
# Takes name, function and description; returns None if another command was asked for.
AddCommand = Callable[[str, Run, str], Optional[argparse.ArgumentParser]]


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1 << 20:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, found {text!r}")
    return int(text)


def threads(text: str) -> int:
    from edgekit.device.runtime.agent.specs import MOST_THREADS

    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= MOST_THREADS:
        raise argparse.ArgumentTypeError(f"expected 1 to {MOST_THREADS}, found {text!r}")
    return int(text)


def release_id(text: str) -> str:
    from edgekit.device.runtime.agent.manifest import is_release_id

    if not is_release_id(text):
        raise argparse.ArgumentTypeError(f"expected 16 hex digits, found {text[:40]!r}")
    return text


def folder(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise argparse.ArgumentTypeError("expected a home directory, found none") from None


def add_placement(parser: argparse.ArgumentParser) -> None:
    """Adds the placement options, which `request_of` reads."""
    parser.add_argument("--threads", type=threads, help="default: set by the release")
    parser.add_argument("--cluster", default="", help="big, little, all, or a kind of core")


def request_of(options: argparse.Namespace) -> PlacementRequest:
    from edgekit.device.runtime.agent.specs import PlacementRequest

    return PlacementRequest(options.threads, options.cluster)


class _Help(argparse.HelpFormatter):
    """Fixed width: argparse creates a formatter per argument, and each would query the terminal
    size."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)


class Parser(argparse.ArgumentParser):
    """Reports usage errors as the same JSON document as other errors."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, **options)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see: {self.prog} --help")


def add_session(parser: argparse.ArgumentParser) -> None:
    """Adds the options that identify a deploy and its owner."""
    parser.add_argument("--session", default="", help="unique name of this deploy")
    parser.add_argument("--owner", default="unknown", help="who deploys, shown to other users")
    parser.add_argument("--take-over", default="", help="a deploy that is known to have ended")


def open_store(options: argparse.Namespace) -> Store:
    from edgekit.device.runtime.agent.store import Store

    return Store(options.root, _log_note)


def _log_note(text: str) -> None:
    """Writes an anomaly to stderr as one line, for the host to show."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"note {' '.join(text.split())}\n")
        sys.stderr.flush()


def load_current(options: argparse.Namespace) -> Tuple[Manifest, ReleaseFiles]:
    """Returns the current release, verified once per process."""
    from edgekit.device.runtime.agent.status import current_release

    found: Optional[Tuple[Manifest, ReleaseFiles]] = getattr(options, "current", None)
    return found or current_release(open_store(options))


@contextlib.contextmanager
def pinned_to_cores(manifest: Manifest, options: argparse.Namespace) -> Iterator[Placement]:
    """Restricts this process, and the model's threads it will start, to the model's cores."""
    from edgekit.device.runtime.agent.placement import place
    from edgekit.device.runtime.pools import on_cores

    placement = place(manifest.placements, request_of(options))
    with on_cores(placement.cores):
        yield placement
