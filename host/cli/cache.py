"""`edgekit cache`: shows the disk usage of the cache and cleans it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.options import Json, examples

if TYPE_CHECKING:
    from edgekit.host.cache import Cached


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "cache",
        epilog=examples(
            "edgekit cache",
            "edgekit cache --clean objects golden",
            "edgekit cache --clean      # all kinds",
        ),
    )(cache)


def cache(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KIND", show_default=False, help="Kinds to show or to remove (default: all)."
        ),
    ] = None,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove the files; they are recreated when needed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show or empty the cache of compiled code and images."""
    if clean:
        _clean_caches(kinds or (), as_json)
    else:
        _print_caches(kinds or (), as_json)


def _print_caches(kinds: Sequence[str], as_json: bool) -> None:
    from edgekit.host.cache import cached
    from edgekit.host.cli.output import byte_size, emit, table
    from edgekit.host.common.paths import cache_folder

    found = cached(kinds)
    total = sum(entry.bytes for entry in found)
    if as_json:
        emit(
            {
                "schema": "edgekit.cache/1",
                "path": str(cache_folder()),
                "bytes": total,
                "kinds": [_to_json(entry) for entry in found],
            }
        )
        return
    rows = [
        (e.kind, e.description or "of another version of edgekit", str(e.files), byte_size(e.bytes))
        for e in found
    ]
    if rows:
        table(("kind", "what", "files", "size"), rows, left=2)
    print(f"total    {byte_size(total)} in {cache_folder()}")


def _clean_caches(kinds: Sequence[str], as_json: bool) -> None:
    from edgekit.host import cache
    from edgekit.host.cli.output import byte_size, emit

    gone = cache.clean(kinds)
    total = sum(entry.bytes for entry in gone)
    if as_json:
        emit(
            {
                "schema": "edgekit.cache.clean/1",
                "bytes": total,
                "kinds": [_to_json(entry) for entry in gone],
            }
        )
        return
    names = ", ".join(entry.kind for entry in gone) or "nothing to remove"
    print(f"removed  {byte_size(total)}: {names}")


def _to_json(entry: Cached) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "path": str(entry.path),
        "files": entry.files,
        "bytes": entry.bytes,
    }
