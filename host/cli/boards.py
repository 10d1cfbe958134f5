"""`edgekit boards`: lists available boards and compilation profiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.options import Json, Select, examples

if TYPE_CHECKING:
    from edgekit.host.deploy.inventory import BoardEntry
    from edgekit.host.virtual import BoardState
    from edgekit.kb.targets.board import BoardProfile

_LESS_IMPORTANT = (9, 7, 5, 2, 3, 8)  # columns: kb, units, caches, core, isa, estimates


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "boards",
        epilog=examples(
            "edgekit boards",
            "edgekit boards --select type=a57,site!=lab",
            "edgekit boards --select name=pi-* --names",
        ),
    )(boards)


def boards(
    select: Select = None,
    names: Annotated[
        bool, typer.Option("--names", help="Print the names only, one per line.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List your boards, the virtual boards, and all profiles."""
    from edgekit.host.cli.output import emit
    from edgekit.host.deploy.inventory import boards as inventory
    from edgekit.host.fleet import select as selected

    known = selected(select, Path.cwd()) if select else inventory(Path.cwd())
    virtual = () if select else _virtual_boards()
    profiles = () if select or names else _load_profiles()
    if as_json:
        found = [*map(_virtual_document, virtual), *map(_known_document, known)]
        more = {} if select else {"profiles": [_profile_document(p) for p in profiles]}
        emit({"schema": "edgekit.boards/1", "boards": found, **more})
    elif names:
        for name in (*(s.name for s in virtual), *(e.name for e in known)):
            print(name)
    else:
        _show_boards(virtual, known)
        if profiles:
            print()
            _show_profiles(profiles)


def _virtual_boards() -> Sequence[BoardState]:
    from edgekit.host.virtual import status

    return status()


def _load_profiles() -> Sequence[BoardProfile]:
    from edgekit.kb.targets.board import board_names, load_board, load_profile, profile_names

    found = [load_board(name) for name in board_names()]
    return [*found, *(p for p in map(load_profile, profile_names()) if p.abstract)]


def _show_boards(virtual: Sequence[BoardState], known: Sequence[BoardEntry]) -> None:
    from edgekit.host.cli.board import login, state_of
    from edgekit.host.cli.board_add import place
    from edgekit.host.cli.output import table

    rows = [
        (s.name, state_of(s), "virtual", s.profile, "", login(s.running) if s.running else "", "")
        for s in virtual
    ]
    for entry in known:
        labels = ",".join(f"{key}={value}" for key, value in sorted(entry.labels.items()))
        trust = "pinned" if entry.host_key or entry.transport != "ssh" else "no host key"
        kind, profile = entry.transport, entry.facts()["type"]
        rows.append((entry.name, "known", kind, profile, labels, place(entry), trust))
    table(("board", "state", "kind", "profile", "labels", "address", "trust"), rows, left=7)


def _show_profiles(profiles: Sequence[BoardProfile]) -> None:
    from edgekit.host.cli.output import byte_size, table

    def size(count: int) -> str:
        return byte_size(count) if count else "-"

    rows = [
        (
            p.name,
            f"base for others: {p.description}" if p.abstract else p.description,
            p.core or p.arch,
            p.simd,
            str(p.cores),
            "/".join(size(n).removesuffix("B").replace(" ", "") for n in _cache_sizes(p)),
            size(p.memory_bytes),
            ",".join(p.units),
            _estimate_error(p),
            str(_count_table_rows(p)),
        )
        for p in profiles
    ]
    headers = (
        *("profile", "description", "core", "isa", "cores"),
        *("L1d/L2/L3", "memory", "units", "estimates", "kb"),
    )
    table(headers, rows, left=4, drop=_LESS_IMPORTANT)


def _estimate_error(profile: BoardProfile) -> str:
    """The error of estimates of float networks on one thread; "-" without a timing model."""
    from edgekit.host.simulator.report import error_text
    from edgekit.host.simulator.target import has_model, target_of

    if profile.abstract or not has_model(profile):
        return "-"
    return error_text(target_of(profile).proof("float", 1)).strip("()")


def _virtual_document(state: BoardState) -> dict[str, Any]:
    from edgekit.host.cli.board import running_document

    document = {
        "name": state.name,
        "kind": "virtual",
        "profile": state.profile,
        "built": state.built,
        "up": state.running is not None,
    }
    return document | (running_document(state.running) if state.running else {})


def _known_document(entry: BoardEntry) -> dict[str, Any]:
    from edgekit.host.cli.board_add import entry_document

    return {**entry_document(entry), "type": entry.facts()["type"]}


def _cache_sizes(profile: BoardProfile) -> tuple[int, int, int]:
    return profile.l1d_bytes, profile.l2_bytes, profile.l3_bytes


def _count_table_rows(profile: BoardProfile) -> int:
    """Number of knowledge base rows for the board: of products, operators and sparse matrices."""
    from edgekit.host.compiler.tables.gemm import table_of
    from edgekit.host.compiler.tables.spmv import spmv_table_of

    table = table_of(profile)
    platform = table.platforms.index(profile.platform)
    dense = (*(row.key for row in table.rows), *(row.key for row in table.operators))
    return sum(key.platform == platform for key in dense) + len(spmv_table_of(profile).rows)


def _profile_document(profile: BoardProfile) -> dict[str, Any]:
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
        "estimates": _estimate_error(profile),
        "knowledge_base_rows": _count_table_rows(profile),
    }
