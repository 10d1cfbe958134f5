"""The outlier split on virtual boards: NumPy's products, and how many instructions they take, which
is recorded in outlier_instructions.json (EDGEKIT_RECORD=1 writes it)."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from outlier_cases import build, check, encoded, output_bytes, random_case

from edgekit.host import connect
from edgekit.host.boards import BoardOptions, down, up
from edgekit.host.build.toolchain import kernels_folder
from edgekit.host.bundle.archive import archive_bytes
from edgekit.kb.board import load_board

pytestmark = [pytest.mark.boards, pytest.mark.long]

_PROGRAM = Path(__file__).parents[1] / "support" / "outlier_on_board.py"
_RECORD = Path(__file__).with_name("outlier_instructions.json")
_SECONDS = 900.0
_SHOWN_ABOVE = 0.01


@pytest.mark.parametrize("name", ["a57", "rv64v"])
def test_products_are_numpys_and_instructions_as_recorded(name, own_home, tmp_path):
    rng = np.random.default_rng(len(name))
    cases = [random_case(rng) for _ in range(60)]
    up(name, options=BoardOptions(counting=True))
    try:
        device = connect(name)
        board = device.transport
        library = build(load_board(device.profile), tmp_path / "products.so")
        files = {
            "package.zip": _package(),
            "products.so": library.read_bytes(),
            "in.bin": encoded(cases),
            "program.py": _PROGRAM.read_bytes(),
        }
        for file, data in files.items():
            board.put(data, f"outlier/{file}", deadline=_SECONDS)
        words = [f"outlier/{file}" for file in ("program.py", "package.zip", "products.so")]
        words += ["outlier/in.bin", "outlier/out.bin", str(output_bytes(cases))]
        done = board.run([board.python, *words], deadline=_SECONDS)
        assert done.exit_code == 0, done.stderr.decode()
        check(cases, board.get("outlier/out.bin", deadline=_SECONDS))
    finally:
        down(name)
    _compare(name, json.loads(done.stdout)["instructions"])


def _package() -> bytes:
    """All modules of edgekit.device: the runtime that is sent with a release has only its own."""
    modules = sorted(kernels_folder().parent.glob("*.py"))
    entries = [("edgekit/", b""), ("edgekit/device/", b"")]
    return archive_bytes(
        [*entries, *((f"edgekit/device/{m.name}", m.read_bytes()) for m in modules)]
    )


def _compare(name: str, found: dict[str, int]) -> None:
    record = json.loads(_RECORD.read_text()) if _RECORD.exists() else {}
    if os.environ.get("EDGEKIT_RECORD") == "1":
        record[name] = found
        _RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    assert set(record[name]) == set(found)
    for product, count in found.items():
        change = count / record[name][product] - 1
        if abs(change) > _SHOWN_ABOVE:
            warnings.warn(
                f"{product} on {name}: {count:,} instructions ({change:+.1%})", stacklevel=2
            )
        assert abs(change) < 0.5, "the record is of another program"
