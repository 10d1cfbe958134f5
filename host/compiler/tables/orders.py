"""Orders of operators that were measured on boards of a platform: the user's table, built of the
history by `edgekit lab tune order` and `edgekit lab kb build`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgekit.host.common.files import atomic_write
from edgekit.host.compiler.tables.user_files import user_file
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile

_SCHEMA = "edgekit.kb.orders/1"
Order = tuple[int, ...]  # positions in the model's own order


@dataclass(frozen=True)
class OrderRow:
    """The best order that was measured of a part, over `searched`, by that ratio; `source`, `board`
    and `when` are those of the last measurement of most weight."""

    graph: str
    order: Order
    searched: Order
    ratio: float
    source: str
    board: str
    when: str
    kit_version: str


Orders = Mapping[str, OrderRow]  # by the hash of a part
NO_ORDERS: Orders = {}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    platform: str
    rows: list[OrderRow]


def user_order_table(board: BoardProfile) -> Path:
    """The file of a board's platform, which need not be there."""
    return user_file("orders", board)


def orders_of(board: BoardProfile) -> Orders:
    """What is remembered for boards of a platform. Raises InputError for a table that cannot be
    read."""
    path = user_order_table(board)
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return NO_ORDERS
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(
            f"{path}: expected a table of measured orders, found: {error}; build it anew: "
            f"edgekit lab kb build --board {board.name}"
        ) from None
    if file.schema != _SCHEMA:
        raise InputError(
            f"{path}: expected {_SCHEMA}, found {file.schema}; build it anew: "
            f"edgekit lab kb build --board {board.name}"
        )
    return {row.graph: row for row in file.rows}


def write_orders(board: BoardProfile, rows: Sequence[OrderRow]) -> Path:
    """Writes the table of a board's platform, and takes away one that would be empty: where it is,
    or would be."""
    path = user_order_table(board)
    if not rows:
        path.unlink(missing_ok=True)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(msgspec.json.encode(row).decode() for row in rows)
    head = f'"schema": "{_SCHEMA}", "platform": "{board.platform}"'
    atomic_write(path, f'{{{head}, "rows": [\n{lines}\n]}}\n'.encode())
    return path
