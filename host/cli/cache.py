"""`edgekit cache`: what compiled code, golden outputs and images take, and making room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.options import Json, examples

if TYPE_CHECKING:
    from edgekit.host.cache import Cached


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="What edgekit keeps to be faster, all of which can be made again.",
        epilog=examples("edgekit cache show", "edgekit cache clean objects golden"),
        rich_markup_mode=None,
    )
    group.command("show", epilog=examples("edgekit cache show", "edgekit cache show --json"))(show)
    group.command(
        "clean",
        epilog=examples("edgekit cache clean boards", "edgekit cache clean      # all of it"),
    )(clean)
    app.add_typer(group, name="cache")


def show(as_json: Json = False) -> None:
    """List what is in the cache, by kind, with its size and place."""
    from edgekit.host.cache import cached
    from edgekit.host.cli.output import byte_size, emit, table
    from edgekit.host.common.paths import cache_folder

    found = cached()
    total = sum(entry.bytes for entry in found)
    if as_json:
        emit(
            {
                "schema": "edgekit.cache/1",
                "path": str(cache_folder()),
                "bytes": total,
                "kinds": [_document(entry) for entry in found],
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


def clean(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KIND", show_default=False, help="As 'cache show' lists them. Default: all."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Remove what is in the cache, or the kinds named.

    It is made again when it is needed, which takes the time it took the first time.
    """
    from edgekit.host import cache
    from edgekit.host.cli.output import byte_size, emit

    gone = cache.clean(kinds or ())
    total = sum(entry.bytes for entry in gone)
    if as_json:
        emit(
            {
                "schema": "edgekit.cache.clean/1",
                "bytes": total,
                "kinds": [_document(entry) for entry in gone],
            }
        )
        return
    names = ", ".join(entry.kind for entry in gone) or "nothing was there"
    print(f"removed  {byte_size(total)}: {names}")


def _document(entry: Cached) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "path": str(entry.path),
        "files": entry.files,
        "bytes": entry.bytes,
    }
