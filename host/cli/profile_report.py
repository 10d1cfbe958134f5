"""`edgekit profile report`: what boards sent home, as one page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.host.cli.options import Json, examples


def register(group: typer.Typer) -> None:
    """Adds the command to the group."""
    lines = ("edgekit profile report", "edgekit profile report -o fleet.html --trace trace.json")
    group.command("report", epilog=examples(*lines))(report)


def report(
    output: Annotated[Path, typer.Option("-o", metavar="FILE.html", help="The page.")] = Path(
        "report.html"
    ),
    trace_file: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE.json",
            show_default=False,
            help="Write operators' medians as a trace for Perfetto, too.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a page about all profiles: operators, graph, boards, releases. It needs no network."""
    from edgekit.host.cli.output import byte_size, emit
    from edgekit.host.cli.pages import check_pages, utc_now, write_pages
    from edgekit.host.profiles import ProfileStore
    from edgekit.host.report import field_report

    check_pages(output, trace_file)
    made = field_report(ProfileStore(), utc_now())
    write_pages(made, output, trace_file)
    models = len({subject.model for subject in made.subjects})
    releases = sum(len(subject.releases) for subject in made.subjects)
    size = output.stat().st_size
    if as_json:
        emit(
            {
                "schema": "edgekit.profile.report/1",
                "file": str(output),
                "trace": str(trace_file) if trace_file else None,
                "bytes": size,
                "models": models,
                "releases": releases,
            }
        )
        return
    print(f"wrote    {output}, {byte_size(size)}: models {models}, releases {releases}")
    if trace_file:
        print(f"trace    {trace_file}: open it in Perfetto, or in chrome://tracing")
