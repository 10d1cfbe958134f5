"""`edgekit tune layouts` on this machine, and for a core."""

from __future__ import annotations

import pytest

from edgekit.kb.layout_table import KERNELS, read_layouts


@pytest.mark.long
def test_a_table_is_measured_and_kept(edgekit, home):
    done = edgekit("tune", "layouts", "--allow-noise", "--output", "table.json", "--json")
    assert done.code == 0
    found = done.document
    assert found["unit"] == "nanoseconds" and {c[0] for c in found["cases"]} == set(KERNELS)
    assert len(read_layouts(home / "table.json").cases) == len(found["cases"])


@pytest.mark.cross
@pytest.mark.long
def test_cycles_are_estimated_for_a_board_that_is_not_there(edgekit, home):
    done = edgekit("tune", "layouts", "--board", "rpi4", "--output", "table.json", "--json")
    assert done.code == 0
    assert done.document["unit"] == "cycles"
    assert read_layouts(home / "table.json").platform == "cortex-a72"
