"""`edgekit boards`: the board profiles there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from edgekit.host.cli.options import Json, examples

if TYPE_CHECKING:
    from edgekit.kb.targets.board import BoardProfile


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command("boards", epilog=examples("edgekit boards", "edgekit boards --json"))(boards)


def boards(as_json: Json = False) -> None:
    """List the boards a model can be compiled for, and the bases that they are made of."""
    from edgekit.host.cli.output import byte_size, emit, table
    from edgekit.kb.targets.board import board_names, load_board, load_profile, profile_names

    profiles = [load_board(name) for name in board_names()]
    profiles += [p for p in map(load_profile, profile_names()) if p.abstract]
    if as_json:
        emit({"schema": "edgekit.boards/1", "boards": [_entry(p) for p in profiles]})
        return

    def size(count: int) -> str:
        return byte_size(count) if count else "-"

    rows = [
        (
            p.name,
            f"base for others: {p.description}" if p.abstract else p.description,
            p.core or p.arch,
            p.simd,
            str(p.cores),
            "/".join(size(n).removesuffix("B").replace(" ", "") for n in _caches(p)),
            size(p.memory_bytes),
            ",".join(p.units),
            str(_rows(p)),
        )
        for p in profiles
    ]
    headers = ("board", "description", "core", "isa", "cores", "L1d/L2/L3", "memory", "units", "kb")
    table(headers, rows, left=4)


def _caches(profile: BoardProfile) -> tuple[int, int, int]:
    return profile.l1d_bytes, profile.l2_bytes, profile.l3_bytes


def _rows(profile: BoardProfile) -> int:
    """Rows of the knowledge base that are the board's."""
    from edgekit.host.compiler.tables.gemm import table_of

    table = table_of(profile)
    platform = table.platforms.index(profile.platform)
    return sum(row.key.platform == platform for row in table.rows)


def _entry(profile: BoardProfile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "description": profile.description,
        "base": profile.abstract,
        "source": profile.source,
        "core_profile": profile.core_profile,
        "arch": profile.arch,
        "core": profile.core,
        "cpu": profile.cpu,
        "isa": profile.simd,
        "features": list(profile.features),
        "vlen_bits": profile.vlen_bits,
        "cores": profile.cores,
        "l1d_bytes": profile.l1d_bytes,
        "l2_bytes": profile.l2_bytes,
        "l3_bytes": profile.l3_bytes,
        "memory_bytes": profile.memory_bytes,
        "units": list(profile.units),
        "knowledge_base_rows": _rows(profile),
    }
