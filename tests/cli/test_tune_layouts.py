"""`edgekit tune layouts` on this machine."""

from __future__ import annotations

import pytest

from edgekit.kb.layout_table import KERNELS, read_layouts


@pytest.mark.long
def test_a_table_is_measured_and_kept(edgekit, home):
    done = edgekit("tune", "layouts", "--output", "table.json", "--json")
    assert done.code == 0
    found = done.document
    assert found["unit"] == "nanoseconds" and set(found["rates"]) == set(KERNELS)
    assert read_layouts(home / "table.json").cases == found["cases"]
