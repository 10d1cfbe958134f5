"""Execution orders measured on a platform's boards: the user's tables, built from the history.

`edgekit lab tune model` and `edgekit lab kb build` write them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgekit.host.common.files import atomic_write, read_file
from edgekit.host.compiler.tables.user_files import user_file
from edgekit.host.errors import InputError
from edgekit.kb.decoding import decode_json
from edgekit.kb.targets.board import BoardProfile

_SCHEMA = "edgekit.kb.orders/1"
Order = tuple[int, ...]  # positions in the model's original order


@dataclass(frozen=True)
class OrderRow:
    """The best order measured for a subgraph; `ratio` is relative to order `searched`. `source`,
    `board` and `when` describe the latest measurement with the highest weight."""

    graph: str
    order: Order
    searched: Order
    ratio: float
    source: str
    board: str
    when: str
    kit_version: str


Orders = Mapping[str, OrderRow]  # by subgraph hash
NO_ORDERS: Orders = {}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema: str
    platform: str
    rows: list[OrderRow]


def user_order_table(board: BoardProfile) -> Path:
    """Path of the platform's table, which need not exist."""
    return user_file("orders", board)


def orders_of(board: BoardProfile) -> Orders:
    """Return the recorded orders of a board's platform. Raises InputError if the table cannot be
    read."""
    path = user_order_table(board)
    try:
        file = decode_json(read_file(path), _File)
    except FileNotFoundError:
        return NO_ORDERS
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(
            f"{path}: expected a table of measured orders, found: {error}; build it again: "
            f"edgekit lab kb build --board {board.name}"
        ) from None
    if file.schema != _SCHEMA:
        raise InputError(
            f"{path}: expected {_SCHEMA}, found {file.schema}; build it again: "
            f"edgekit lab kb build --board {board.name}"
        )
    return {row.graph: row for row in file.rows}


def write_orders(board: BoardProfile, rows: Sequence[OrderRow]) -> Path:
    """Write the table of a board's platform, or delete it if there are no rows; returns its
    path."""
    path = user_order_table(board)
    if not rows:
        path.unlink(missing_ok=True)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(msgspec.json.encode(row).decode() for row in rows)
    head = f'"schema": "{_SCHEMA}", "platform": "{board.platform}"'
    atomic_write(path, f'{{{head}, "rows": [\n{lines}\n]}}\n'.encode())
    return path
