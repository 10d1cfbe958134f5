"""edgekit boards."""

from __future__ import annotations

from typing import Any

from edgekit.kb.board import board_names


def test_json_lists_every_board_with_its_properties(edgekit: Any) -> None:
    done = edgekit("boards", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.document["schema"] == "edgekit.boards/1"
    boards = {board["name"]: board for board in done.document["boards"]}
    assert list(boards) == board_names()
    assert boards["a57"]["core"] == "cortex-a57"
    assert boards["a57"]["isa"] == "neon"
    assert boards["rv64gcv"]["vlen_bits"] > 0
    for board in boards.values():
        assert board["cores"] > 0
        assert board["l1d_bytes"] > 0
        assert board["units"][0] == "cpu"
    assert boards["nna2"]["units"] == ["cpu", "nna"]


def test_table_has_a_line_per_board_in_plain_text(edgekit: Any) -> None:
    lines = edgekit("boards").out.splitlines()
    assert [line.split()[0] for line in lines] == ["board", *board_names()]
    assert all(line.isprintable() for line in lines)
