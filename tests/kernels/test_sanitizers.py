"""Every kernel under AddressSanitizer and UndefinedBehaviorSanitizer, on odd sizes.

Inputs, outputs and weights are separate heap blocks, so a read or write past any of them ends the
run. Needs clang with its runtime (Debian: clang-19 libclang-rt-19-dev).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nna_cases
import numpy as np
import pytest
from gemm_cases import DTYPES, encoded, output_bytes, random_product, units
from gemm_cases import check as check_products
from kernel_runs import check, x86_boards
from op_graphs import FAMILIES, inputs_of, random_graph

from edgekit.device.dtypes import BY_NAME
from edgekit.host.build.toolchain import Unit, kernels_folder
from edgekit.host.codegen.emit import describe
from edgekit.host.compiler import units_of
from edgekit.host.lower.lower import lower
from edgekit.kb.tiles import COLUMNS, Columns

pytestmark = pytest.mark.sanitizers

_DRIVER = Path(__file__).parents[1] / "cross" / "driver.c"
_ARCH = {
    "scalar": [],
    "sse2": [],
    "avx2": ["-march=x86-64-v3"],
    "avx512vnni": ["-march=x86-64-v4", "-mavx512vnni"],
}
_CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
_BOARDS = {b.simd: b for b in x86_boards()}


def _clang() -> str:
    names = [
        os.environ.get("EDGEKIT_CLANG", ""),
        *(f"clang-{v}" for v in range(25, 17, -1)),
        "clang",
    ]
    return next(found for name in names if name and (found := shutil.which(name)))


def _compile(arguments: list[str]) -> None:
    command = [_clang(), "-std=gnu11", "-O1", "-g", *_CHECKS, f"-I{kernels_folder()}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sanitized") / "driver"
    _compile([str(_DRIVER), "-o", str(path), "-ldl", "-lpthread"])
    return path


def _library(units: Sequence[Unit], simd: str, folder: Path) -> Path:
    """All units with the sanitizers, as one library."""

    def compiled(unit: Unit) -> str:
        source = unit.source
        if isinstance(source, str):
            source = folder / f"{unit.name}.c"
            source.write_text(unit.text().decode())
        target = str(folder / f"{unit.name}.o")
        macros = [f"-D{key}={value}" for key, value in unit.macros]
        arch = [] if unit.plain else _ARCH[simd]
        _compile([*arch, *macros, "-fPIC", "-c", str(source), "-o", target])
        return target

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        objects = list(threads.map(compiled, units))
    library = folder / "model.so"
    _compile(["-shared", "-o", str(library), *objects, "-lm", "-lpthread"])
    return library


def _run(*command: str) -> None:
    # The driver leaves its buffers to the end of the process.
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=env
    )
    assert done.returncode == 0, done.stderr[-4000:]


def _run_cases(driver: Path, library: Path, cases: bytes, size: int, threads: int) -> bytes:
    """The `size` bytes that a model of one input and one output makes of `cases`."""
    given, made, nothing = (library.with_name(n) for n in ("in.bin", "out.bin", "weights.bin"))
    given.write_bytes(cases)
    nothing.write_bytes(b"")
    files = (str(given), str(made), str(threads), str(len(cases)), str(size))
    _run(str(driver), str(library), str(nothing), "0", "0", "1", "1", *files)
    return made.read_bytes()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "simd", ["scalar", "avx512vnni", pytest.param("avx2", marks=pytest.mark.long)]
)
def test_kernels_stay_in_bounds(family, simd, driver, tmp_path):
    if simd not in _BOARDS:
        simd = "sse2"
    graph = random_graph(family, 10, seed=len(family) + 2)
    inputs = inputs_of(graph)
    plan = lower(graph, _BOARDS[simd])
    library = _library(units_of(plan, _BOARDS[simd]), simd, tmp_path)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(plan.lowered.weights)
    about = json.loads(json.dumps(describe(plan)))
    given, made = tmp_path / "in.bin", tmp_path / "out.bin"
    given.write_bytes(b"".join(inputs[name].tobytes() for name in graph.inputs))
    types = [np.dtype((BY_NAME[t["dtype"]].npy, tuple(t["shape"]))) for t in about["outputs"]]
    _run(
        *(str(p) for p in (driver, library, weights)),
        *(str(about[k]) for k in ("arena_bytes", "state_bytes")),
        *("1", "1", str(given), str(made), "2"),
        ",".join(str(inputs[name].nbytes) for name in graph.inputs),
        ",".join(str(t.itemsize) for t in types),
    )
    row = np.fromfile(made, np.dtype([(f"f{i}", t) for i, t in enumerate(types)]))[0]
    check(graph, {n: row[f"f{i}"] for i, n in enumerate(graph.outputs)}, inputs)


@pytest.mark.parametrize(
    "simd", ["avx512vnni", *(pytest.param(s, marks=pytest.mark.long) for s in ("scalar", "avx2"))]
)
def test_products_stay_in_bounds(simd, driver, tmp_path, monkeypatch):
    if simd not in _BOARDS:
        simd = "sse2"
    # Low tiles: the tall ones take minutes to compile with these checks, and differ in nothing.
    few = Columns(f32=(3, 2), i8=(3, 2))
    monkeypatch.setitem(COLUMNS, simd, few)
    rng = np.random.default_rng(len(simd))
    products = [random_product(rng, dtype) for dtype in DTYPES for _ in range(200)]
    library = _library(units(_BOARDS[simd]), simd, tmp_path)
    made = _run_cases(driver, library, encoded(products), output_bytes(products), threads=2)
    check_products(products, made)


@pytest.mark.parametrize(
    "simd", ["avx512vnni", *(pytest.param(s, marks=pytest.mark.long) for s in ("scalar", "avx2"))]
)
def test_the_nna_stays_in_bounds(simd, driver, tmp_path):
    if simd not in _BOARDS:
        simd = "sse2"
    cases = nna_cases.random_cases()
    library = _library(nna_cases.units(_BOARDS[simd]), simd, tmp_path)
    size = nna_cases.output_bytes(cases)
    made = _run_cases(driver, library, nna_cases.encoded(cases), size, threads=1)
    nna_cases.check(cases, made)
