"""`edgekit tune layouts` on this machine."""

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
