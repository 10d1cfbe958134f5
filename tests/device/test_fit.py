"""Board requirements, checked against described boards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgekit.device.runtime.agent.fit import BoardFacts, check_fit
from edgekit.device.runtime.agent.manifest import BoardNeeds
from edgekit.device.runtime.agent.specs import BoardMemory
from edgekit.device.runtime.errors import IncompatibleError

NEEDS = BoardNeeds("rv64gcv", "riscv64", ("v", "zba"), 256)
MEMORY = BoardMemory(600, 300, 100)
BOARD = BoardFacts("riscv64", frozenset({"a", "v", "zba"}), 256, 1000, 8 << 20)


@pytest.mark.parametrize(
    "board",
    [
        BOARD,
        replace(BOARD, vlen_bits=1024),
        replace(BOARD, vlen_bits=None),
        replace(BOARD, available_bytes=None),
        replace(BOARD, stack_bytes=None),
    ],
)
def test_boards_that_fit(board: BoardFacts) -> None:
    check_fit(NEEDS, MEMORY, board)


@pytest.mark.parametrize(
    ("board", "message"),
    [
        (replace(BOARD, machine="aarch64"), "built for aarch64, found one for riscv64"),
        (replace(BOARD, features=frozenset("v")), "with v, zba, found one without zba"),
        (
            replace(BOARD, vlen_bits=128),
            r"at least 256 bits \(profile rv64gcv\), found 128; compile .* of 128 bits or fewer",
        ),
        (replace(BOARD, available_bytes=999), "expected 1000 bytes of free memory .* found 999"),
        (replace(BOARD, stack_bytes=128 << 10), "stack of at least 640 KiB, found .* 128 KiB"),
    ],
)
def test_boards_that_do_not(board: BoardFacts, message: str) -> None:
    with pytest.raises(IncompatibleError, match=message):
        check_fit(NEEDS, MEMORY, board)


def test_model_without_vectors_runs_anywhere() -> None:
    check_fit(replace(NEEDS, vlen_bits=0, features=()), MEMORY, replace(BOARD, vlen_bits=128))
