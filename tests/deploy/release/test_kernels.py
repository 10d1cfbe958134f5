"""Releases of kernels: a library of products with its tables, for programs on the board."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.device import nna_matmul
from edgekit.device.runtime import application
from edgekit.device.runtime.agent.batch import bodies
from edgekit.device.runtime.agent.kernels import GEMM_TABLE
from edgekit.device.runtime.agent.manifest import parse_manifest
from edgekit.device.runtime.agent.spool import Spool
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.toolchain.gemm_blob import table_blob
from edgekit.host.deploy.api import Device, compile_model
from edgekit.host.deploy.bundle import Bundle, SigningKey, sign_bundle
from edgekit.host.deploy.bundle.build import file_entries
from edgekit.host.deploy.bundle.kernels import build_kernels_bundle
from edgekit.host.deploy.release.application import read_application, unsigned_with
from edgekit.host.errors import IncompatibleError, InputError, RolledBackError
from edgekit.host.fleet.profiles.batch import decode_batch
from edgekit.kb.targets.board import load_board
from tests.support.c_application import build_program
from tests.support.onnx_models import model, node, save, value
from tests.support.product_cases import check_nna, check_products, operands
from tests.support.toolchains import program_compiler

pytestmark = pytest.mark.slow

_TESTS = Path(__file__).parents[2]
_PROGRAM = (_TESTS / "support" / "products_on_board.py").read_text()
_C_PROGRAM = _TESTS / "device" / "products.c"
_PAGE = _TESTS.parent / "docs" / "applications.md"
_EXPLAINED = """
import json, os, sys
from array import array
sys.path.insert(0, os.path.realpath(sys.argv[1]))
from edgekit_runtime import SparseMatrix, gemm

def how(m, k, n):
    a, b = (memoryview(bytes(4 * x * y)).cast("f", [x, y]) for x, y in ((m, k), (k, n)))
    why = gemm(a, b, explain=True)[1]
    return [why.rule, why.reason, why.method.mr, why.method.nr]

rows = [range(row, 70, 3) for row in range(5)]
starts = array("q", [sum(map(len, rows[:row])) for row in range(6)])
columns = array("i", [column for row in rows for column in row])
ones = array("f", [1.0] * len(columns))
width = SparseMatrix.from_csr(starts, columns, ones, (5, 70)).settings.width
print(json.dumps([how(5, 70, 40), how(40, 70, 5), width]))
"""


@pytest.fixture(scope="module")
def bundle(trusted: SigningKey) -> Bundle:
    return sign_bundle(build_kernels_bundle(load_board("local")), trusted)


@pytest.fixture
def kernels(device: Device, bundle: Bundle) -> Device:
    """The board, with the kernels deployed."""
    found = device.named("kernels")
    found.deploy(bundle)
    return found


Changed = Callable[..., Bundle]


@pytest.fixture
def changed(bundle: Bundle, trusted: SigningKey) -> Changed:
    """changed(files, board): the bundle with other files or for another board, signed."""

    def change(files: dict[str, bytes], **board: str) -> Bundle:
        every = {**bundle.files, **files}
        needs = replace(bundle.manifest.board, **board)
        made = replace(bundle.manifest, files=file_entries(every), board=needs).with_id()
        return sign_bundle(Bundle(parse_manifest(made.to_json()), every), trusted)

    return change


def run(runtime: Path, root: str = "", program: str = _PROGRAM) -> subprocess.CompletedProcess[str]:
    """Runs a program on the board without NumPy; the supervisor sets `root` for applications."""
    command = [sys.executable, "-I", "-S", "-c", program, str(runtime)]
    environment = {"EDGEKIT_ROOT": root}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_programs_multiply_with_the_release_whose_runtime_they_import(
    kernels: Device, board_root: Path
) -> None:
    runtime = board_root / "named" / "kernels" / "current" / "runtime.pyz"
    found = json.loads(run(runtime).stdout)
    check_products(found)
    check_nna(found)
    _, text = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    program = text.replace("~/.edgekit", str(board_root))
    command = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[[20.0, 23.0, 26.0, 29.0], [56.0, 68.0, 80.0, 92.0]] ")
    table = runtime.with_name(GEMM_TABLE)
    table.write_bytes(table.read_bytes()[: table.stat().st_size // 2])
    assert "TransferError: kernels.so.table: expected " in run(runtime).stderr.splitlines()[-1]


def test_an_application_of_the_release_runs_from_a_copy(
    device: Device, bundle: Bundle, trusted: SigningKey, board_root: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    (folder / "main.py").write_text("import edgekit_runtime")
    (folder / "app.toml").touch()
    made = sign_bundle(unsigned_with(bundle, read_application(folder)), trusted)
    release = device.named("kernels").deploy(made).release.id
    root = board_root / "named" / "kernels"
    (copied := tmp_path / "run" / release).mkdir(parents=True)
    shutil.copy(root / "current" / "runtime.pyz", copied)
    check_products(json.loads(run(copied / "runtime.pyz", str(root)).stdout))


C = ("-std=c99", "-xc")
CXX = ("-std=c++11", "-nostdlib++", "-fno-exceptions", "-fno-rtti", "-xc++")


@pytest.mark.parametrize("language", [C, CXX], ids=["C", "C++"])
def test_programs_in_c_multiply_with_the_deployed_kernels(
    kernels: Device, board_root: Path, tmp_path: Path, language: tuple[str, ...]
) -> None:
    del kernels
    include = board_root / "named" / "kernels" / "current" / "include"
    options = [f"-I{include}", f"-L{include}", "-ledgekit-app", f"-Wl,-rpath,{include}"]
    if shutil.which("pkg-config"):
        command = ["pkg-config", "--cflags", "--libs", "edgekit-kernels"]
        paths = {**os.environ, "PKG_CONFIG_PATH": str(include)}
        said = subprocess.run(command, env=paths, capture_output=True, text=True, check=True)
        assert sorted(said.stdout.split()) == sorted(options)
    compiler = [*program_compiler(), "-Wall", "-Wextra", "-Werror", *language]
    program = tmp_path / "program"
    subprocess.run([*compiler, str(_C_PROGRAM), *options, "-o", str(program)], check=True)
    done = subprocess.run(
        [program, board_root, "kernels"], capture_output=True, text=True, check=True
    )
    if language is C:
        example = re.findall(r"```c\n(.*?)```", _PAGE.read_text(), re.DOTALL)[-1]
        compiler += ["-", *options, "-o", str(program)]
        subprocess.run(compiler, input=example, text=True, check=True)
        paths = {"EDGEKIT_ROOT": str(board_root)}
        assert subprocess.run([program], env=paths, stdout=subprocess.PIPE).stdout.startswith(
            b"37 "
        )
    found = json.loads(done.stdout)
    check_products(found)
    said = run(include.parent / "runtime.pyz", program=_EXPLAINED).stdout
    how, turned, width = json.loads(said)
    turned[1] += "; of the transposed product, as the result has columns"
    assert (found["how"], found["by_columns"], found["form"][2]) == (how, turned, width)


def test_kernels_and_models_of_a_program_in_c_share_threads(
    kernels: Device, device: Device, board_root: Path, trusted: SigningKey, tmp_path: Path
) -> None:
    del kernels
    path = save(model([node("Relu", ["x"], ["y"])], [value("x", (1, 9))], ["y"]), tmp_path)
    device.deploy(sign_bundle(compile_model(path, board="local"), trusted))
    include = board_root / "named" / "kernels" / "current" / "include"
    program = tmp_path / "program"
    source = _TESTS / "device" / "shared_pool.c"
    options = [f"-I{include}", f"-L{include}", "-ledgekit-app", f"-Wl,-rpath,{include}"]
    command = [*program_compiler(), str(source), *options, "-o", str(program)]
    subprocess.run(command, check=True)
    done = subprocess.run([program, board_root], capture_output=True, text=True, check=True)
    assert done.stdout == "3 3 3 0 1\n"


def test_a_release_without_kernels_is_named_to_programs_in_c(
    device: Device, tiny: Callable[..., Bundle], board_root: Path, tmp_path: Path
) -> None:
    program = build_program(tmp_path, _C_PROGRAM)
    for said in ("expected deployed kernels in ", "expected kernels, found a model; deploy them: "):
        done = subprocess.run([program, board_root], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.count("\n")) == (3, 1)
        assert said in done.stdout
        device.deploy(tiny())


@pytest.mark.skipif(not shutil.which("cmake"), reason="CMake is not installed")
def test_cmake_finds_the_headers_and_the_library(
    kernels: Device, board_root: Path, tmp_path: Path
) -> None:
    del kernels
    include = board_root / "named" / "kernels" / "current" / "include"
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(products NONE)\n"
        f'find_package(edgekit-kernels REQUIRED PATHS "{include}")\n'
        "foreach(name IMPORTED_LOCATION INTERFACE_INCLUDE_DIRECTORIES)\n"
        '  get_target_property(found edgekit::kernels ${name})\n  message("${found}")\n'
        "endforeach()\n"
    )
    command = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert [Path(line).resolve() for line in said.split()] == [
        (include / "libedgekit-app.so").resolve(),
        include.resolve(),
    ]


def test_several_live_side_by_side_and_go_back(
    kernels: Device, bundle: Bundle, changed: Changed
) -> None:
    first = bundle.manifest.id
    other = changed({GEMM_TABLE: _no_rows(bundle)})  # the knowledge base learned
    assert kernels.plan(other).send == (GEMM_TABLE,)
    second = kernels.deploy(other).release
    assert (second.previous, second.health["products"]) == (first, list(_kinds(bundle)))
    beside = kernels.named("beside")
    assert beside.deploy(bundle).release.sent_bytes == 0
    back = kernels.rollback().current
    assert back is not None and back.id == first
    assert back.bytes == sum(entry.bytes for entry in bundle.manifest.files)
    now = kernels.named(None).status().named
    assert {name: s.current and s.current.id for name, s in now.items()} == {
        "kernels": first,
        "beside": first,
    }


def test_a_release_that_computes_something_else_goes_back(
    kernels: Device, bundle: Bundle, changed: Changed
) -> None:
    for path, said in (
        ("spmv/out0.bin", "spmv: output 'result': expected"),
        ("outlier/out0.bin", "outlier: output 'result': expected"),
        (GEMM_TABLE, "expected the GEMM table of this edgekit"),
    ):
        data = bytearray(bundle.files[path])
        data[3] ^= 0x40
        with pytest.raises(RolledBackError, match=said):
            kernels.deploy(changed({path: bytes(data)}))
        now = kernels.status().current
        assert now is not None and now.id == bundle.manifest.id


def test_products_on_the_nna_of_a_board_have_its_account(
    device: Device, trusted: SigningKey, board_root: Path
) -> None:
    board = replace(load_board("local"), nna=load_board("nna1").nna)
    assert board.nna is not None
    device.named("kernels").deploy(sign_bundle(build_kernels_bundle(board), trusted))
    runtime = board_root / "named" / "kernels" / "current" / "runtime.pyz"
    found = json.loads(run(runtime).stdout)
    check_products(found)
    a, b = (matrix.astype(np.int8) for matrix in operands())
    sums, account = nna_matmul(a, b, True, chip=board.nna.chip)
    assert found["nna"] == sums.tolist()
    assert found["cycles"] == account.cycles != nna_matmul(a, b, True)[1].cycles


def test_kernels_of_another_instruction_set_are_refused(device: Device, changed: Changed) -> None:
    with pytest.raises(IncompatibleError, match="found one for m68k"):
        device.named("kernels").deploy(changed({}, machine="m68k"))


def test_kernels_are_no_model(kernels: Device, board_root: Path) -> None:
    with pytest.raises(InputError, match="expected a model, found kernels of"):
        kernels.bench(count=1)
    for _ in range(4):  # programs that die three times would go back to the previous release
        with pytest.raises(application.InputError, match="expected a model, found kernels of"):
            application.open("kernels", root=board_root)
    assert not list((board_root / "named" / "kernels" / "watch").iterdir())


def test_the_runtime_of_a_model_says_where_the_products_are(
    tiny_device: Device, board_root: Path
) -> None:
    assert "edgekit deploy --kernels" in run(board_root / "current" / "runtime.pyz").stderr


def _kinds(bundle: Bundle) -> list[str]:
    assert bundle.manifest.kernels is not None
    return [product.kind for product in bundle.manifest.kernels.products]


def _no_rows(bundle: Bundle) -> bytes:
    """The table of products without rows."""
    local = load_board("local")
    table = table_blob(table_of(local).with_rows(()), local.platform)
    assert table != bundle.files[GEMM_TABLE]
    return table


def sampled(kernels: Device, board_root: Path, *sizes: int) -> str:
    """Runs the program that samples all of its products; returns what it prints."""
    runtime = board_root / "named" / "kernels" / "current" / "runtime.pyz"
    program = _TESTS / "support" / "sampled_products.py"
    command = [sys.executable, "-I", "-S", str(program), str(runtime), *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.mark.exhaustive
def test_products_of_programs_are_sampled(kernels: Device, board_root: Path) -> None:
    spool, runtime = Spool(board_root / "spool"), board_root / "named/kernels/current/runtime.pyz"
    spool.switch("off")
    run(runtime)
    assert not spool.waits
    spool.switch("on")
    run(runtime)  # of the few products of a program, the second is sampled
    (first,) = bodies(spool.fetch(1 << 20).data)
    assert [row[1] for row in json.loads(first)["operators"]] == ["spmv"]
    spool.acknowledge(spool.fetch(1).spool, 1)
    with ThreadPoolExecutor() as pool:  # two processes at once
        list(pool.map(lambda _: sampled(kernels, board_root, 3, 24, 40, 48), range(2)))
    found = [json.loads(body) for body in bodies(spool.fetch(1 << 20).data)]
    found.sort(key=lambda batch: batch["subject"]["threads"])
    assert [b["subject"]["threads"] for b in found] == [1, 1, 2, 2]
    assert all(b["subject"]["model"].startswith("kernels of ") for b in found)
    rows = {
        (op, name): (method, samples) for name, op, method, samples, *_ in found[0]["operators"]
    }
    assert rows.keys() == {
        ("gemm", "f32 24x40x48"),
        ("spmv", "f32 40x40:80 even narrow"),
        ("outlier", "s8 24x40x48"),
        ("nna", "s8 24x40x48"),
    }
    assert rows["outlier", "s8 24x40x48"] == ("int8", 3)
    assert all(decode_batch(body).operators for body in bodies(spool.fetch(1 << 20).data))
    shutil.rmtree(spool.folder)
    spool.folder.touch()  # nothing can be written there
    assert sampled(kernels, board_root, 3, 24, 40, 48)


def test_boards_that_explore_try_other_methods_with_the_same_values(
    kernels: Device, board_root: Path
) -> None:
    spool = Spool(board_root / "spool")
    spool.switch("explore")
    sampled(kernels, board_root, 12, 24, 40, 48)  # a warning about other values would be printed
    (found, _) = (json.loads(body) for body in bodies(spool.fetch(1 << 20).data))
    tried = [(op, method) for _, op, method, *_ in found["operators"] if op.endswith("-trial")]
    assert len([m for op, m in tried if op == "gemm-trial"]) > 4
    assert len([m for op, m in tried if op == "spmv-trial"]) >= 2
