"""Tokens of boards: what enrollments that fail or race leave valid."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles.tokens import Tokens


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "store" / "tokens.json")


def test_an_enrollment_that_fails_leaves_the_earlier_token_valid(tokens: Tokens) -> None:
    old = tokens.issue("x")
    with contextlib.suppress(OSError), tokens.issuing("x") as unsure:
        raise OSError("the link broke")
    assert [tokens.board_of(token) for token in (old, unsure)] == ["x", "x"]
    new = tokens.issue("x")
    assert [tokens.board_of(token) for token in (old, unsure, new)] == [None, None, "x"]


def test_the_earlier_token_ends_when_the_new_one_is_installed(tokens: Tokens) -> None:
    old = tokens.issue("x")
    with tokens.issuing("x") as new:
        assert [tokens.board_of(token) for token in (old, new)] == ["x", "x"]
    assert [tokens.board_of(token) for token in (old, new)] == [None, "x"]


def test_of_enrollments_at_once_the_one_that_the_board_has_is_valid(tokens: Tokens) -> None:
    board: list[str] = []

    def enroll(_: int) -> str:
        with Tokens(tokens.path).issuing("x") as token:
            board.append(token)
            return token

    with ThreadPoolExecutor(4) as workers:
        made = list(workers.map(enroll, range(20)))
    assert [token for token in made if tokens.board_of(token)] == board[-1:]


def test_a_board_revoked_while_it_is_enrolled_stays_revoked(tokens: Tokens) -> None:
    with (
        pytest.raises(InputError, match="found it revoked in the meantime"),
        tokens.issuing("x") as token,
    ):
        tokens.revoke("x")
    assert tokens.board_of(token) is None


def test_a_change_is_noticed_though_all_files_have_the_same_time(tokens: Tokens) -> None:
    first = tokens.issue("x")
    os.utime(tokens.path, (1, 1))
    assert tokens.board_of(first) == "x"
    other = Tokens(tokens.path)
    for _ in range(50):
        new = other.issue("x")
        os.utime(tokens.path, (1, 1))
        assert tokens.board_of(new) == "x" and tokens.board_of(first) is None
