"""Argument types and parsers of the runtime's commands."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from edgekit.device.runtime.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.specs import PlacementRequest


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
