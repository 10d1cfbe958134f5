"""edgekit boards."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from edgekit.host.compiler.tables.gemm import kit_table
from edgekit.host.compiler.tables.spmv import spmv_table_of
from edgekit.kb.targets.board import board_names, load_profile, profile_names

BASES = [name for name in profile_names() if load_profile(name).abstract]


def test_json_lists_every_board_with_its_properties(edgekit: Any) -> None:
    done = edgekit("boards", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.document["schema"] == "edgekit.boards/1"
    boards = {board["name"]: board for board in done.document["profiles"]}
    assert list(boards) == [*board_names(), *BASES]
    assert [name for name, board in boards.items() if board["base"]] == BASES
    assert boards["a57"]["core"] == "cortex-a57"
    table, sparse = kit_table(load_profile("a57")), spmv_table_of(load_profile("a57"))
    kinds = table.rows, table.operators, sparse.rows
    assert all(kinds) and boards["a57"]["knowledge_base_rows"] == sum(map(len, kinds))
    assert boards["a57"]["isa"] == "neon"
    assert boards["rv64gcv"]["vlen_bits"] > 0
    for board in boards.values():
        assert board["cores"] > 0
        assert board["l1d_bytes"] > 0
        assert board["units"][0] == "cpu"
    assert boards["nna2"]["units"] == ["cpu", "nna"]


def test_table_has_a_line_per_board_in_plain_text(edgekit: Any) -> None:
    lines = edgekit("boards").out.partition("\n\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == ["profile", *board_names(), *BASES]
    assert sum("base for others: " in line for line in lines) == len(BASES)
    assert all(line.isprintable() for line in lines)


def test_boards_without_published_times_say_that_estimates_are_not_validated(edgekit: Any) -> None:
    profiles = edgekit("boards", "--json").document["profiles"]
    estimates = {profile["name"]: profile["estimates"] for profile in profiles}
    unproven = {name for name, error in estimates.items() if error == "not validated"}
    assert unproven >= {"rk3308", "orin", "orion-o6", "a720", "k230", "k3", "bpi-f3"}
    assert all(estimates[name].startswith("± ") for name in ("rpi4", "odroid-n2", "a73"))
    assert estimates["x86-64"] == "-"
    lines = edgekit("boards").out.splitlines()
    rows = {line.split()[0]: line for line in lines if line}
    assert all("not validated" in rows[name] for name in unproven)


def test_boards_of_the_inventory_are_listed_with_their_address(edgekit: Any, home: Path) -> None:
    (home / "edgekit.toml").write_text(
        '[boards.near]\nprofile = "a57"\nhost = "h"\n'
        '[boards.usual]\nprofile = "a57"\nhost = "h"\nuser = "u"\nport = 22\n'
        '[boards.far]\nprofile = "a57"\nhost = "h"\nport = 2222\n'
    )
    rows = [re.split(" {2,}", row) for row in edgekit("boards").out.splitlines()]
    places = {row[0]: row[-2] for row in rows if row[1:2] == ["known"]}  # trust is last
    assert places == {"near": "h", "usual": "u@h", "far": "h:2222"}


def test_an_inventory_that_is_no_file_is_named(edgekit: Any, home: Path) -> None:
    users = home.parent / "home" / "config" / "boards.toml"
    users.parent.mkdir()
    users.symlink_to("/dev/zero")
    done = edgekit("boards")
    expected = "expected a readable file, found: it is not a regular file"
    assert (done.code, done.complaint) == (2, f"edgekit: {users}: {expected}")
    users.unlink()
    os.mkfifo(home / "edgekit.toml")
    done = edgekit("boards")
    assert (done.code, done.complaint) == (2, f"edgekit: {home / 'edgekit.toml'}: {expected}")


def test_a_wrong_board_gets_the_nearest_names_and_how_to_list_all(
    edgekit: Any, face_model: Any
) -> None:
    done = edgekit("compile", face_model, "--board", "rpi44")
    assert (done.code, done.out) == (2, "")
    assert "found 'rpi44' (nearest: rpi4" in done.complaint
    assert done.complaint.endswith("list them: edgekit boards")


def test_a_base_is_no_board_to_compile_for(edgekit: Any, face_model: Any) -> None:
    done = edgekit("compile", face_model, "--board", "generic-aarch64")
    assert (done.code, done.out) == (2, "")
    assert "only a base for a53, " in done.complaint


def test_a_board_that_is_not_there_gets_the_nearest_names(edgekit: Any) -> None:
    done = edgekit("status", "--board", "locl")
    assert (done.code, done.out) == (2, "")
    assert "(nearest: local" in done.complaint


def test_a_profile_that_is_not_there_gets_the_nearest_boards(
    edgekit: Any, home: Path, face_model: Path
) -> None:
    board = '[boards.kitchen]\nhost = "127.0.0.1"\nprofile = "rpi4"\n'
    (home / "edgekit.toml").write_text(board)
    done = edgekit("compile", str(face_model), "--board", "kitchn")
    assert done.complaint == (
        "edgekit: expected a board or profile, found 'kitchn' (nearest: kitchen); "
        "list them: edgekit boards"
    )


def test_products_are_looked_up_for_a_board_in_its_core_s_table(edgekit: Any) -> None:
    asked = ("lab", "kb", "lookup", "--gemm", "3,1000,3")
    found = [edgekit(*asked, "--board", board, "--json").document for board in ("rpi3", "a53")]
    assert found[0]["method"] == found[1]["method"]
    assert found[0]["rule"] == found[1]["rule"] != "analytic"
