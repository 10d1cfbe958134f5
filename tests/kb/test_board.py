"""Board profiles: all load, inherit, and fit the tables they name."""

from __future__ import annotations

import pytest

from edgekit.host.lower.isa import ISAS
from edgekit.kb.board import UnknownBoardError, board_names, load_board, load_profile


@pytest.mark.parametrize("name", board_names())
def test_a_profile_names_what_exists(name):
    board = load_board(name)
    assert board.simd in ISAS and board.description and board.units
    assert board.l1d_bytes <= board.l2_bytes and board.cores >= 1
    assert (board.vlen_bits > 0) == (board.simd == "rvv128")
    if name != "local":
        assert board.memory_bytes and board.core


def test_the_boards_of_the_contract_are_there():
    wanted = {"local", "a7", "a53", "a55", "a57", "a72", "a76", "rv64gc", "rv64gcv"}
    assert wanted <= set(board_names())


def test_dot_product_kernels_ask_for_the_feature():
    for name in board_names():
        board = load_board(name)
        assert ("asimddp" in board.features) == (board.simd == "neondot")


def test_inheritance_overrides_one_key_at_a_time():
    base, board = load_profile("generic-aarch64"), load_board("a57")
    assert board.target == base.target and board.features == base.features
    assert board.cpu != base.cpu and base.abstract and not board.abstract


@pytest.mark.parametrize("name", ["nosuch", "../a57", "", "generic-aarch64"])
def test_an_unknown_profile_is_one_line(name):
    with pytest.raises(UnknownBoardError) as error:
        load_board(name)
    assert "\n" not in str(error.value)
