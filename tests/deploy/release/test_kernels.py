"""Releases of kernels: a library of products with its tables, for programs on the board."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.device import nna_matmul
from edgekit.device.runtime import application
from edgekit.device.runtime.agent.kernels import GEMM_TABLE
from edgekit.device.runtime.agent.manifest import parse_manifest
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.toolchain.gemm_blob import table_blob
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey, sign_bundle
from edgekit.host.deploy.bundle.build import file_entries
from edgekit.host.deploy.bundle.kernels import build_kernels_bundle
from edgekit.host.deploy.release.application import read_application, unsigned_with
from edgekit.host.errors import IncompatibleError, InputError, RolledBackError
from edgekit.kb.targets.board import load_board
from tests.support.product_cases import check_products, operands

pytestmark = pytest.mark.slow

_PROGRAM = Path(__file__).parents[2] / "support" / "products_on_board.py"


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


def run(runtime: Path, root: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the program on the board without NumPy; the supervisor sets `root` for applications."""
    command = [sys.executable, "-I", "-S", str(_PROGRAM), str(runtime)]
    environment = {"EDGEKIT_ROOT": root}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_programs_multiply_with_the_release_whose_runtime_they_import(
    kernels: Device, board_root: Path
) -> None:
    runtime = board_root / "named" / "kernels" / "current" / "runtime.pyz"
    check_products(json.loads(run(runtime).stdout))
    page = Path(__file__).parents[3] / "docs" / "applications.md"
    _, text = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
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
        (GEMM_TABLE, "expected the GEMM table of this kit"),
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
    device: Device, tiny: Callable[..., Bundle], board_root: Path
) -> None:
    device.deploy(tiny())
    assert "edgekit deploy --kernels" in run(board_root / "current" / "runtime.pyz").stderr


def _kinds(bundle: Bundle) -> list[str]:
    assert bundle.manifest.kernels is not None
    return [product.kind for product in bundle.manifest.kernels.products]


def _no_rows(bundle: Bundle) -> bytes:
    """The table of products without rows."""
    table = table_blob(table_of(load_board("local")), "no platform")
    assert table != bundle.files[GEMM_TABLE]
    return table
