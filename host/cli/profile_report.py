"""`edgekit profile report`: what boards sent home, as one page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.host.cli.options import Json, examples
from edgekit.host.cli.pages import Trace, check_pages, utc_now, write_pages


def register(group: typer.Typer) -> None:
    """Adds the command to the group."""
    lines = ("edgekit profile report", "edgekit profile report -o fleet.html --trace trace.json")
    group.command("report", epilog=examples(*lines))(report)


def report(
    output: Annotated[Path, typer.Option("-o", metavar="FILE.html", help="The page.")] = Path(
        "report.html"
    ),
    trace: Trace = None,
    as_json: Json = False,
) -> None:
    """Write a page about all profiles: operators, graph, boards, releases. It needs no network."""
    from edgekit.host.cli.output import byte_size, emit
    from edgekit.host.profiles import ProfileStore
    from edgekit.host.report import field_report

    check_pages(output, trace)
    made = field_report(ProfileStore(), utc_now())
    write_pages(output, trace, lambda: made)
    models = len({subject.model for subject in made.subjects})
    releases = sum(len(subject.releases) for subject in made.subjects)
    size = output.stat().st_size
    if as_json:
        emit(
            {
                "schema": "edgekit.profile.report/1",
                "file": str(output),
                "trace": str(trace) if trace else None,
                "bytes": size,
                "models": models,
                "releases": releases,
            }
        )
        return
    print(f"wrote    {output}, {byte_size(size)}: models {models}, releases {releases}")
    if trace:
        print(f"trace    {trace}: open it in Perfetto, or in chrome://tracing")
