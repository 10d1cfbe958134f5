"""An instruction set consists of a facts file, a header, and a profile that names it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.kb.targets.board import load_board, load_profile, profile_names
from edgekit.kb.targets.isa import FOLDER, isa_of

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A copy of the kit with a renamed copy of the plain C instruction set that has a different
    tile: header, facts file and profile."""
    here = load_board("local")
    fitting = (load_profile(name) for name in profile_names())
    base = next(p for p in fitting if p.arch == here.arch and {*p.features} <= {*here.features})
    kit = tmp_path / "kit" / "edgekit"
    for room in ("device", "kb"):
        shutil.copytree(_ROOT / room, kit / room, ignore=shutil.ignore_patterns("__pycache__"))
    (kit / "host").symlink_to(_ROOT / "host")
    headers, targets = kit / "device/kernels/simd", kit / "kb/targets"
    shutil.copy(headers / "scalar.h", headers / "madeup.h")
    (targets / "simd/madeup.toml").write_text(
        'inherits = "scalar"\nf32_tiles = [[3, 2]]\n[columns]\nf32 = [7, 5]\n'
    )
    (targets / "boards/madeup.toml").write_text(
        f'description = "made up"\ninherits = "{base.name}"\nabstract = false\nsimd = "madeup"\n'
    )
    return kit.parent


_PROGRAM = """
import sys
from pathlib import Path

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.toolchain.kernels import kernel_units, tables
from edgekit.kb.targets import isa
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of

made_up = load_board("madeup")
assert "madeup" in isa.isa_names() and made_up.isa.f32_tiles == (isa.Tile(3, 2),)
rng = np.random.default_rng(1)
weights = constant(rng.normal(0, 1, (9, 33)).astype(np.float32))
graph = graph_of([Case(ops.FullyConnected(), (tensor((7, 33)), weights, None))])
inputs = inputs_of(graph)
folder = build(graph, made_up, Path(sys.argv[1]))
assert "madeup" in (folder / "about.json").read_text()
check(graph, run_here(folder, inputs), inputs)
names = [unit.name for unit in kernel_units(made_up)]
assert {"ek_gemm_f32_7x1", "ek_gemm_f32_5x2"} <= {*names}
assert "ek_gemm_f32_5x2" in tables(made_up)
print("done")
"""


@pytest.mark.slow
def test_a_new_instruction_set_is_a_file_a_header_and_a_profile(kit, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "built")],
        env={**os.environ, "PYTHONPATH": f"{kit}{os.pathsep}{_ROOT}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('inherits = "scalar"\nlenght = 4\n', "lenght"),
        ('inherits = "scalar"\nvl = "four"\n', "vl"),
        ("vl = 4\n", "registers"),
    ],
)
def test_a_wrong_file_is_one_line(text, found, tmp_path):
    shutil.copy(FOLDER / "scalar.toml", tmp_path)
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(ValueError, match=f"instruction set 'odd'.*{found}") as error:
        isa_of("odd", tmp_path)
    assert "\n" not in str(error.value)


def test_an_unknown_instruction_set_is_named_with_those_there_are():
    with pytest.raises(ValueError, match=r"avx2.*found 'mmx'"):
        isa_of("mmx")
