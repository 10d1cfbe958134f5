"""`edgekit lab tune cost --layouts`: measures layers in both image layouts on a board."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from edgekit.host.compiler.costs.layout_table import LayoutTable


def tune_layouts(
    name: str,
    output: Path | None,
    allow_noise: bool,
    transport: Literal["ssh", "serial"] | None,
    as_json: bool,
) -> None:
    """Measures layers in both image layouts, for compile to choose, or estimates them."""
    from edgekit.host.cli.tune_estimated import device_to_measure
    from edgekit.host.compiler.tables.layouts import user_layout_table
    from edgekit.host.deploy.api import connect
    from edgekit.host.deploy.connections import profile_of
    from edgekit.host.deploy.release import check_quiet
    from edgekit.host.lab.tune.layouts import estimate_layouts
    from edgekit.host.lab.tune.layouts import tune_layouts as tune
    from edgekit.host.simulator.target import has_model
    from edgekit.kb.targets.board import load_board

    device = device_to_measure(name, transport)
    profile = load_board(profile_of(name) if device is None else device.profile)
    path = output or user_layout_table(profile)
    if device is None and not has_model(profile):
        device = connect(name, transport=transport)
    if device is None:
        found = estimate_layouts(profile, path)
    else:
        if not (allow_noise or device.emulated):
            check_quiet(device, threads=1)
        found = tune(device, path, allow_noise=allow_noise)
    show_layouts(found, path, as_json)


def show_layouts(found: LayoutTable, path: Path, as_json: bool) -> None:
    """Prints the costs of a table that was written to `path`."""
    from edgekit.host.cli.output import emit, table
    from edgekit.host.lab.tune.layouts import left_out_error

    cases = [[c.kernel, *c.work.sizes, c.cost] for c in found.cases]
    if as_json:
        emit(
            {
                "schema": "edgekit.tune.layouts/1",
                "table": str(path),
                "unit": found.unit,
                "error": left_out_error(found),
                "cases": cases,
            }
        )
        return
    rows = [[str(name), *(f"{v:,.0f}" for v in values)] for name, *values in cases]
    table(["kernel", "products", "values", "pieces", "inputs", found.unit], rows)
    print(f"median error of a cost estimated from the others: {left_out_error(found):.1%}")
    print(f"kept in {path}")
