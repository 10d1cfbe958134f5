"""`edgekit lab tune cost --layouts` on this machine and, estimated, for another core."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.host.cli.tune_cost import show_layouts
from edgekit.host.compiler.costs.layout_table import (
    KERNELS,
    KernelWork,
    LayoutCase,
    LayoutTable,
    read_layouts,
)

_TUNE = ("lab", "tune", "cost", "--layouts")


def test_options_of_operators(edgekit):
    done = edgekit(*_TUNE, "--rounds", "3")
    assert done.code == 2 and "expected --rounds or --layouts, found both" in done.complaint
    done = edgekit("lab", "tune", "cost", "--output", "table.json")
    assert done.code == 2 and "expected --layouts with --output, found none" in done.complaint


@pytest.mark.long
def test_a_table_is_measured_and_kept(edgekit, home):
    done = edgekit(*_TUNE, "--allow-noise", "--output", "table.json", "--json")
    assert done.code == 0
    found = done.document
    assert found["unit"] == "nanoseconds" and {c[0] for c in found["cases"]} >= set(KERNELS)
    assert len(read_layouts(home / "table.json").cases) == len(found["cases"])


@pytest.mark.cross
@pytest.mark.long
def test_cycles_are_estimated_for_a_board_that_is_not_there(edgekit, home):
    done = edgekit(*_TUNE, "--board", "rpi4", "--output", "table.json", "--json")
    assert done.code == 0
    assert done.document["unit"] == "cycles"
    assert read_layouts(home / "table.json").platform == "cortex-a72"


def test_a_table_is_shown(capfd):
    cases = tuple(
        LayoutCase(kernel, KernelWork(1_000_000, 2_000, 4, 3_000), 5e4)
        for kernel in KERNELS
        for _ in range(2)
    )
    show_layouts(LayoutTable("x", "cycles", cases), Path("table.json"), as_json=False)
    out = capfd.readouterr().out
    heads, first, *_ = (line.split() for line in out.splitlines())
    assert heads == ["kernel", "products", "values", "pieces", "inputs", "cycles"]
    assert first == [KERNELS[0], "1,000,000", "2,000", "4", "3,000", "50,000"]
    assert out.endswith("kept in table.json\n")
