"""The outlier split under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from kernel_runs import x86_boards
from outlier_cases import check, encoded, output_bytes, random_case, units

from edgekit.host.build.toolchain import Unit, kernels_folder
from edgekit.kb.tiles import COLUMNS, Columns

pytestmark = pytest.mark.sanitizers

_DRIVER = Path(__file__).parents[1] / "cross" / "driver.c"
_ARCH = {"avx2": ["-march=x86-64-v3"], "avx512vnni": ["-march=x86-64-v4", "-mavx512vnni"]}
_CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
_BOARDS = {board.simd: board for board in x86_boards()}
_OTHERS = ("nna", "sparse_", "ek_spm")  # parts of the library that have nothing to do with it


def _compile(*arguments: str) -> None:
    names = [os.environ.get("EDGEKIT_CLANG", ""), *(f"clang-{v}" for v in range(25, 17, -1))]
    clang = next(found for name in (*names, "clang") if name and (found := shutil.which(name)))
    command = [clang, "-std=gnu11", "-O1", "-g", *_CHECKS, f"-I{kernels_folder()}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _object(unit: Unit, simd: str, folder: Path) -> str:
    source = unit.source
    if isinstance(source, str):
        source = folder / f"{unit.name}.c"
        source.write_text(unit.text().decode())
    made = str(folder / f"{unit.name}.o")
    arch = [] if unit.plain else _ARCH.get(simd, [])
    macros = [f"-D{key}={value}" for key, value in unit.macros]
    _compile(*arch, *macros, "-fPIC", "-c", str(source), "-o", made)
    return made


@pytest.mark.parametrize(
    "simd", ["avx512vnni", *(pytest.param(s, marks=pytest.mark.long) for s in ("scalar", "avx2"))]
)
def test_products_stay_in_bounds(simd, tmp_path, monkeypatch):
    if simd not in _BOARDS:
        simd = "sse2"
    # Low tiles: the tall ones take minutes to compile with these checks, and differ in nothing.
    monkeypatch.setitem(COLUMNS, simd, Columns(f32=(3, 2), i8=(3, 2)))
    rng = np.random.default_rng(len(simd))
    cases = [random_case(rng) for _ in range(250)]
    driver, library = tmp_path / "driver", tmp_path / "products.so"
    _compile(str(_DRIVER), "-o", str(driver), "-ldl", "-lpthread")
    needed = [unit for unit in units(_BOARDS[simd]) if not unit.name.startswith(_OTHERS)]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        objects = list(threads.map(lambda unit: _object(unit, simd, tmp_path), needed))
    _compile("-shared", "-o", str(library), *objects, "-lm", "-lpthread")
    given, made, nothing = (tmp_path / name for name in ("in.bin", "out.bin", "weights.bin"))
    given.write_bytes(encoded(cases))
    nothing.write_bytes(b"")
    sizes = (str(given.stat().st_size), str(output_bytes(cases)))
    files = (str(driver), str(library), str(nothing))
    done = subprocess.run(
        [*files, "0", "0", "1", "1", str(given), str(made), "3", *sizes],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    check(cases, made.read_bytes())
