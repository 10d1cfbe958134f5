"""The page of estimated times: bars with their errors, and nothing that a name can inject."""

from __future__ import annotations

import re

from edgekit.host.report.estimates import BoardEngines, EngineTime, estimates_page

_HOSTILE = "<script>alert(1)</script>"


def _page(*times: EngineTime, missing: tuple[str, ...] = ()) -> str:
    board = BoardEngines("face", "rpi4", "a72 at 1800 MHz", times, missing)
    return estimates_page([board, BoardEngines("face", "orin", _HOSTILE, ())], "today")


def test_bars_have_one_scale_and_end_in_their_errors():
    page = _page(EngineTime("ncnn 1", 15.0, 60.0, 1.5), EngineTime("edgekit", 10.0, 20.0, 1.0))
    bars = re.findall(r"class='fill'[^>]* width='([\d.]+)%'", page)
    assert bars == ["41.67", "62.50"]  # of 24 ms, the end of the longest error bar; fastest first
    ends = re.findall(r"class='whisker' x='([\d.]+)%' y='7' height='2' width='([\d.]+)%'", page)
    assert ends == [("33.33", "16.67"), ("25.00", "75.00")]
    assert "± 60%" in page and "1.50" in page


def test_a_time_that_was_not_validated_has_no_error_bar():
    page = _page(EngineTime("edgekit", 10.0, None, 1.0))
    assert "not validated" in page and "class='whisker'" not in page


def test_names_are_text_and_the_page_loads_nothing():
    page = _page(EngineTime(_HOSTILE, 1.0, 5.0, 1.0), missing=(f"mnn: {_HOSTILE}",))
    assert "<script" not in page and page.count("&lt;script&gt;") == 3
    assert "default-src 'none'" in page and not re.search(r"(src|href|style)=['\"]", page)
