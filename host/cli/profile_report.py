"""`edgekit profile report|compare`: reports of field profiles, and comparison of releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli.options import Json, Store, examples, parse_percent, writes
from edgekit.host.cli.pages import Trace, check_pages, utc_now, write_pages
from edgekit.host.cli.profile_write import store_of
from edgekit.host.common.text import counted

if TYPE_CHECKING:
    from edgekit.host.fleet.profiles import Agreement, CallTimes, ReleaseComparison, StrayTensor
    from edgekit.host.report import Report

_MOST = 12  # operators in a table


def register(group: typer.Typer) -> None:
    """Adds the commands to the group."""
    lines = (
        "edgekit profile report",
        "edgekit profile report --fleet -o fleet.html",
    )
    group.command("report", epilog=examples(*lines))(report)
    lines = (
        "edgekit profile compare 3c1f 9b0d",
        "edgekit profile compare 3c1f 9b0d --fail-above 5%",
    )
    group.command("compare", epilog=examples(*lines))(compare)


def report(
    output: Annotated[
        Path,
        typer.Option(
            "-o", parser=writes("report.html"), metavar="FILE.html", help="Page to write."
        ),
    ] = Path("report.html"),
    trace: Trace = None,
    fleet: Annotated[
        bool,
        typer.Option(
            "--fleet",
            help="Start with the fleet: releases, the spread of their times, and slow boards.",
        ),
    ] = False,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Write an offline page about all profiles; list products."""
    from edgekit.host.cli.output import byte_size, emit
    from edgekit.host.deploy.inventory import boards
    from edgekit.host.fleet.profiles import agreements, call_times, stray_tensors
    from edgekit.host.report.field import field_report

    check_pages(output, trace)
    names = [entry.name for entry in boards(Path.cwd())] if fleet else None
    kept = store_of(store)
    made, products = field_report(kept, utc_now(), names), call_times(kept)
    shares, strays = agreements(kept), stray_tensors(kept)
    if not made.subjects and not names:
        _report_products(products, as_json)
        if not as_json:
            _print_fields(shares, strays)
        return
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
                "fleet": _fleet_document(made),
                "agreement": [{**asdict(each), "share": each.share} for each in shares],
                "strays": [asdict(each) for each in strays],
                "products": [asdict(each) for each in products],
            }
        )
        return
    print(f"wrote    {output}, {byte_size(size)}: models {models}, releases {releases}")
    if made.fleet:
        odd, silent = made.fleet.straggler_count, made.fleet.missing_count
        print(f"fleet    boards {made.fleet.boards}, stragglers {odd}, silent {silent}")
    if trace:
        print(f"trace    {trace}: open it in Perfetto, or in chrome://tracing")
    _print_fields(shares, strays)
    _print_products(products)


def _print_fields(shares: Sequence[Agreement], strays: Sequence[StrayTensor]) -> None:
    """Prints how releases agree with their float models, and where their ranges are too small."""
    from edgekit.host.cli.output import table
    from edgekit.host.cli.report import end_of

    if shares:
        rows = [
            (a.release, a.model, a.measure, f"{a.share:.4f}", str(a.inferences), str(a.boards))
            for a in shares[:_MOST]
        ]
        table(("release", "model", "compared by", "agree", "inferences", "boards"), rows, left=3)
    if strays:
        rows = [
            (s.release, end_of(s.name), f"{s.low:.4g} to {s.high:.4g}",
             f"{s.from_low:.4g} to {s.to_high:.4g}", f"{100 * s.beyond:.2g}%", str(s.boards))
            for s in strays[:_MOST]
        ]  # fmt: skip
        heads = ("release", "tensor", "in the field", "its range", "beyond", "boards")
        table(heads, rows, left=4)
        if len(strays) > _MOST:
            print(f"{len(strays) - _MOST} more tensors: --json")


def _report_products(products: Sequence[CallTimes], as_json: bool) -> None:
    """Reports the products of programs if no model has a profile, so that there is no page."""
    from edgekit.host.cli.output import emit

    if as_json:
        document = {"file": None, "models": 0, "products": [asdict(each) for each in products]}
        emit({"schema": "edgekit.profile.report/1", **document})
        return
    print("no model has a profile, so no page is written")
    _print_products(products)


def _print_products(products: Sequence[CallTimes]) -> None:
    from edgekit.host.cli.output import table

    if not products:
        return
    rows = [
        (
            f"{each.kind} {each.product}",
            each.method,
            str(each.threads),
            f"{each.median_us:.3g}",
            str(each.samples),
            str(each.boards),
        )
        for each in products[:_MOST]
    ]
    table(("product", "method", "threads", "µs", "samples", "boards"), rows, left=2)
    if len(products) > _MOST:
        print(f"{len(products) - _MOST} more products: --json")


def _fleet_document(made: Report) -> dict[str, Any] | None:
    return asdict(made.fleet) if made.fleet else None


def compare(
    before: Annotated[
        str,
        typer.Argument(
            metavar="A", show_default=False, help="Release, by its id or the start of it."
        ),
    ],
    after: Annotated[
        str, typer.Argument(metavar="B", show_default=False, help="Release to compare it with.")
    ],
    fail_above: Annotated[
        str | None,
        typer.Option(
            "--fail-above",
            metavar="5%",
            show_default=False,
            help="Exit with code 9 if B or one of its operators is this much slower.",
        ),
    ] = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Compare the times of two releases, and how certain they are."""
    from edgekit.host.cli.output import emit
    from edgekit.host.errors import SlowerError
    from edgekit.host.fleet import profiles

    limit = None if fail_above is None else parse_percent(fail_above, "--fail-above")
    found = profiles.compare(store_of(store), before, after)
    slower = [] if limit is None else found.slower(limit)
    if as_json:
        summary = {"limit": limit, "slower": [change.name or "inference" for change in slower]}
        emit({"schema": "edgekit.profile.compare/1", **asdict(found), **summary})
    else:
        _print_comparison(found)
    if slower:
        worst = max(slower, key=lambda change: change.sure)
        what = f"operator {worst.name}" if worst.name else "an inference"
        raise SlowerError(
            f"expected release {found.after} to take at most {fail_above} longer than "
            f"{found.before}, found {what} at {_format_change(worst.ratio)} "
            f"({_format_change(worst.low)} to {_format_change(worst.high)}); "
            "see: edgekit profile report"
        )


def _print_comparison(found: ReleaseComparison) -> None:
    from edgekit.host.cli.output import table
    from edgekit.host.cli.report import end_of

    where = f"{found.boards} boards that ran both" if found.paired else "different boards"
    print(f"model    {found.model} on {found.board_type}, {where}")
    counts = "{} and {} batches".format(*found.batches)
    print(f"releases {found.before} to {found.after}, {counts}")
    changed = [found.whole, *found.operators[:_MOST]]
    rows = [
        (
            end_of(c.name) if c.name else "inference",
            c.op,
            f"{c.before_us:.1f}",
            f"{c.after_us:.1f}",
            _format_change(c.ratio),
            f"{_format_change(c.low)} to {_format_change(c.high)}",
        )
        for c in changed
    ]
    table(("operator", "kind", "µs before", "after", "change", "95% sure"), rows, left=2)
    hidden = len(found.operators) - _MOST
    if hidden > 0:
        print(f"{counted(hidden, 'more operator')}: --json")
    if found.left_out:
        only = counted(len(found.left_out), "operator is", "operators are")
        print(f"{only} in only one of the releases")


def _format_change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}%"
