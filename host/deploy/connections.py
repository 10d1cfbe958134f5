"""Connects to boards by name: this machine, the inventory, or a virtual board."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgekit.host.common.paths import data_folder
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.inventory import HOME_FOLDER, BoardEntry, boards, find_board
from edgekit.host.deploy.transport import LocalTransport, Transport
from edgekit.host.errors import IncompatibleError, InputError
from edgekit.host.virtual.machines import virtual_board, virtual_board_names
from edgekit.kb.targets.board import (
    UnknownBoardError,
    board_names,
    load_board,
    nearest,
    profile_names,
)

if TYPE_CHECKING:
    from edgekit.host.deploy.transport.serial_line import SerialTarget
    from edgekit.host.virtual import RunningBoard

_ADDRESS = re.compile(r"[@:/]|^[0-9]+(\.[0-9]+){3}$")  # what no name has
_PASSWORD = "EDGEKIT_PASSWORD"  # for a serial console; passwords do not belong in a file

LOCAL = "local"
Via = Literal["ssh", "serial"]


def check_counting(board: Board) -> None:
    """Raises IncompatibleError for a virtual board that supports neither timing nor counting.

    Does not contact the board.
    """
    if board.emulated and not board.counting:
        name = board.name
        raise IncompatibleError(
            f"board '{name}': expected an emulated board that counts instructions, found one "
            f"without; start it again: edgekit board down {name}, then "
            f"edgekit board up {name} --count-instructions"
        )


def profile_of(name: str, folder: Path | None = None) -> str:
    """Returns the profile to compile for: that of the board `name`, or `name` itself.

    Raises UnknownBoardError.
    """
    if name == LOCAL:
        return name
    if entry := find_board(name, folder or Path.cwd()):
        return entry.profile
    if name in virtual_board_names():
        return virtual_board(name).profile
    if name in profile_names():
        return name
    try:
        load_board(name)
    except UnknownBoardError:
        if _ADDRESS.search(name):
            raise UnknownBoardError(_unreachable_message(name)) from None
        if near := nearest(name, _names(folder)):
            raise UnknownBoardError(f"expected a board or profile, found '{name}'{near}") from None
        raise
    return name


def connect_to(name: str, via: Via | None = None, folder: Path | None = None) -> Board:
    """Returns the board `name`; sends nothing yet.

    A board of the inventory (edgekit.toml in `folder` or above, then the user's) takes precedence
    over a virtual board of the same name. Raises InputError if there is neither.
    """
    if name == LOCAL:
        return Board(LocalTransport(data_folder() / "boards" / LOCAL), profile=LOCAL, own=True)
    if entry := find_board(name, folder or Path.cwd()):
        return connect_to_entry(entry, via)
    from edgekit.host.virtual import find_running

    if running := find_running(name):
        transport = _to_virtual(running, via)
        profile, counting = running.profile, running.counting
        # One thread: a real board's fastest setting does not carry over to an emulator that spins
        # per core.
        return Board(
            transport, profile=profile, own=True, emulated=True, threads=1, counting=counting
        )
    raise InputError(_unreachable_message(name))


def console_of(name: str, folder: Path | None = None) -> SerialTarget:
    """Returns the serial console of the board `name`, looked up like `connect_to`. Raises
    InputError."""
    if name == LOCAL:
        raise InputError(
            "expected a board with a serial console, found 'local', which is this machine; "
            "name a board: --board NAME, or a port: --device /dev/ttyUSB0"
        )
    if entry := find_board(name, folder or Path.cwd()):
        return _entry_console(entry)
    from edgekit.host.virtual import find_running

    if running := find_running(name):
        return _virtual_console(running)
    raise InputError(_unreachable_message(name))


def connect_to_entry(entry: BoardEntry, via: Via | None = None) -> Board:
    """Connects to a board that is, or is about to be, in the inventory."""
    own = entry.transport == LOCAL
    transport, cluster = _to_entry(entry, via), entry.cluster or ""
    return Board(transport, profile=entry.profile, own=own, threads=entry.threads, cluster=cluster)


def _unreachable_message(name: str) -> str:
    if _ADDRESS.search(name):
        return (
            f"expected the name of a board, found the address {name!r}; "
            f"name it once: edgekit board add NAME --host {shlex.quote(name)}"
        )
    add = f"edgekit board add {name} --host USER@ADDRESS"
    if name in virtual_board_names():
        return (
            f"expected a board that can be reached, found none named '{name}'; "
            f"start a virtual one: edgekit board up {name}, or name yours: {add}"
        )
    if name in board_names():
        return (
            f"expected a board that can be reached, found only the profile '{name}'; "
            f"name your board: {add}"
        )
    return (
        f"expected a board that can be reached, found none named '{name}'{_suggest_name(name)}; "
        f"list them: edgekit boards, or add it: {add}"
    )


def _suggest_name(name: str) -> str:
    return nearest(name, _names()) or nearest(name)


def _names(folder: Path | None = None) -> list[str]:
    """The names of boards that are no profiles."""
    known = (entry.name for entry in boards(folder or Path.cwd()))
    return [LOCAL, *known, *virtual_board_names()]


def _to_entry(entry: BoardEntry, via: Via | None) -> Transport:
    kind = via or entry.transport
    if kind == LOCAL:
        return LocalTransport(data_folder() / "boards" / entry.name, entry.name)
    if kind == "serial":
        return _open_serial(_entry_console(entry), entry.folder)
    if entry.host is None:
        raise InputError(
            f"board '{entry.name}': expected an address, found none in the inventory; "
            f'add host = "..." to [boards.{entry.name}]'
        )
    from edgekit.host.deploy.transport.ssh import SshTarget, SshTransport
    from edgekit.host.deploy.transport.ssh_config import user_config

    return SshTransport(
        SshTarget(
            board=entry.name,
            host=entry.host,
            port=entry.port,
            user=entry.user,
            identity=entry.identity,
            host_key=entry.host_key,
            config=user_config(),
        ),
        entry.folder,
    )


def _to_virtual(board: RunningBoard, via: Via | None) -> Transport:
    if via == "serial":
        return _open_serial(_virtual_console(board))
    from edgekit.host.deploy.transport.ssh import SshTarget, SshTransport

    return SshTransport(
        SshTarget(
            board=board.name,
            host=board.ssh_host,
            port=board.ssh_port,
            user=board.user,
            identity=board.identity,
            host_key=board.host_key,
        )
    )


def _open_serial(target: SerialTarget, folder: str = HOME_FOLDER) -> Transport:
    from edgekit.host.deploy.transport.serial import SerialTransport

    return SerialTransport(target, folder)


def _entry_console(entry: BoardEntry) -> SerialTarget:
    from edgekit.host.deploy.transport.serial_line import SerialTarget

    if entry.device is None:
        raise InputError(
            f"board '{entry.name}': expected a serial device, found none in the inventory; "
            f'add device = "/dev/ttyUSB0" to [boards.{entry.name}]'
        )
    password = os.environ.get(_PASSWORD)
    return SerialTarget(entry.name, entry.device, entry.baud, entry.user or "root", password)


def _virtual_console(board: RunningBoard) -> SerialTarget:
    from edgekit.host.deploy.transport.serial_line import SerialTarget

    return SerialTarget(board.name, board.console, user=board.user, password=board.password)
