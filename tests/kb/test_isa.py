"""An instruction set consists of a facts file, a header, and a profile that names it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import edgekit.device
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.toolchain.kernels import kernel_units, tables
from edgekit.host.compiler.toolchain.zig import kernels_folder
from edgekit.kb.targets import board as boards
from edgekit.kb.targets import isa
from edgekit.kb.targets.board import BoardProfile, load_board, load_profile, profile_names
from tests.support.kernel_runs import build, check, run_here
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[BoardProfile]:
    """A profile for a renamed copy of the plain C instruction set with a different tile: header,
    facts file and profile in copies of the kit's folders."""
    here = load_board("local")
    fitting = (load_profile(name) for name in profile_names())
    base = next(p for p in fitting if p.arch == here.arch and {*p.features} <= {*here.features})
    for folder, copy in ((kernels_folder(), "kernels"), (isa.FOLDER, "simd")):
        shutil.copytree(folder, tmp_path / copy)
    shutil.copytree(boards.FOLDER, tmp_path / "boards")
    headers = tmp_path / "kernels/simd"
    shutil.copy(headers / "scalar.h", headers / "madeup.h")
    (tmp_path / "simd/madeup.toml").write_text(
        'inherits = "scalar"\nf32_tiles = [[3, 2]]\n[columns]\nf32 = [7, 5]\n'
    )
    (tmp_path / "boards/madeup.toml").write_text(
        f'inherits = "{base.name}"\nabstract = false\nsimd = "madeup"\n'
    )
    monkeypatch.setattr(edgekit.device, "__path__", [str(tmp_path), *edgekit.device.__path__])
    monkeypatch.setattr(isa, "FOLDER", tmp_path / "simd")
    monkeypatch.setattr(boards, "FOLDER", tmp_path / "boards")
    kernels_folder.cache_clear()
    yield load_board("madeup")
    kernels_folder.cache_clear()
    isa.isa_of.cache_clear()


def test_a_new_instruction_set_is_a_file_a_header_and_a_profile(made_up, tmp_path):
    assert "madeup" in isa.isa_names() and made_up.isa.f32_tiles == (isa.Tile(3, 2),)
    rng = np.random.default_rng(1)
    weights = constant(rng.normal(0, 1, (9, 33)).astype(np.float32))
    graph = graph_of([Case(ops.FullyConnected(), (tensor((7, 33)), weights, None))])
    inputs = inputs_of(graph)
    folder = build(graph, made_up, tmp_path / "built")
    assert "madeup" in (folder / "about.json").read_text()
    check(graph, run_here(folder, inputs), inputs)
    names = [unit.name for unit in kernel_units(made_up)]
    assert {"ek_gemm_f32_7x1", "ek_gemm_f32_5x2"} <= {*names}
    assert "ek_gemm_f32_5x2" in tables(made_up)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('inherits = "scalar"\nlenght = 4\n', "lenght"),
        ('inherits = "scalar"\nvl = "four"\n', "vl"),
        ("vl = 4\n", "registers"),
    ],
)
def test_a_wrong_file_is_one_line(text, found, monkeypatch, tmp_path):
    shutil.copy(isa.FOLDER / "scalar.toml", tmp_path)
    (tmp_path / "odd.toml").write_text(text)
    monkeypatch.setattr(isa, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=f"instruction set 'odd'.*{found}") as error:
        isa.isa_of("odd")
    assert "\n" not in str(error.value)


def test_an_unknown_instruction_set_is_named_with_those_there_are():
    with pytest.raises(ValueError, match=r"avx2.*found 'mmx'"):
        isa.isa_of("mmx")
