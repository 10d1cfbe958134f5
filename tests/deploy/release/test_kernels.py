"""Releases of kernels: a library of products with its tables, for programs on the board."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.device.runtime import application
from edgekit.device.runtime.agent.kernels import GEMM_TABLE
from edgekit.device.runtime.agent.manifest import parse_manifest
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.toolchain.gemm_blob import table_blob
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey, sign_bundle
from edgekit.host.deploy.bundle.build import file_entries
from edgekit.host.deploy.bundle.kernels import build_kernels_bundle
from edgekit.host.errors import IncompatibleError, InputError, RolledBackError
from edgekit.kb.targets.board import load_board

pytestmark = pytest.mark.slow

_PROGRAM = """
import os, sys
from array import array
sys.path.insert(0, os.path.realpath(sys.argv[1]))
import edgekit_runtime
try:
    from edgekit_runtime import gemm
    def matrix(rows, columns):
        flat = array("f", range(rows * columns))
        return memoryview(flat).cast("B").cast("f", [rows, columns])
    print(gemm(matrix(2, 3), matrix(3, 2)).tolist())
except edgekit_runtime.DeviceError as error:
    print(type(error).__name__, error)
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


def run(runtime: Path) -> str:
    """What a program on the board without NumPy prints."""
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(runtime)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_programs_multiply_with_the_release_whose_runtime_they_import(
    kernels: Device, board_root: Path
) -> None:
    runtime = board_root / "named" / "kernels" / "current" / "runtime.pyz"
    assert run(runtime) == "[[10.0, 13.0], [28.0, 40.0]]"
    table = runtime.with_name(GEMM_TABLE)
    table.write_bytes(table.read_bytes()[: table.stat().st_size // 2])
    found = run(runtime)
    assert found.startswith("TransferError kernels.so.table: expected ") and "\n" not in found


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


@pytest.mark.parametrize("path", ["gemm_f32/out0.bin", GEMM_TABLE])
def test_a_release_that_computes_something_else_goes_back(
    kernels: Device, bundle: Bundle, changed: Changed, path: str
) -> None:
    data = bytearray(bundle.files[path])
    data[2] ^= 0x40
    with pytest.raises(RolledBackError, match=r"gemm_f32: output 'result'|table of this kit"):
        kernels.deploy(changed({path: bytes(data)}))
    now = kernels.status().current
    assert now is not None and now.id == bundle.manifest.id


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
    assert "edgekit deploy --kernels" in run(board_root / "current" / "runtime.pyz")


def _kinds(bundle: Bundle) -> list[str]:
    assert bundle.manifest.kernels is not None
    return [product.kind for product in bundle.manifest.kernels.products]


def _no_rows(bundle: Bundle) -> bytes:
    """The table of products without rows."""
    table = table_blob(table_of(load_board("local")), "no platform")
    assert table != bundle.files[GEMM_TABLE]
    return table
