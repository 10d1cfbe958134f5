"""The NNA's native emulator on each board under qemu: NumPy's sums, Python's cycles."""

from __future__ import annotations

import pytest
from nna_cases import build, check, encoded, output_bytes, random_cases

from edgekit.kb.board import load_board

pytestmark = pytest.mark.cross


@pytest.mark.parametrize("board", ["a57", "a76", "a7", "rv64gc", "rv64gcv"])
def test_products_and_accounts_are_those_of_this_machine(board, virtual_board, tmp_path):
    cases = random_cases()
    library = build(load_board(board), tmp_path / "products.so")
    given, made, nothing = (tmp_path / name for name in ("in.bin", "out.bin", "weights.bin"))
    given.write_bytes(encoded(cases))
    nothing.write_bytes(b"")
    sizes = (str(given.stat().st_size), str(output_bytes(cases)))
    files = (str(given), str(made))
    done = virtual_board(board).execute(
        str(library), str(nothing), "0", "0", "1", "1", *files, "1", *sizes
    )
    assert done.returncode == 0, done.stderr + done.stdout
    check(cases, made.read_bytes())
