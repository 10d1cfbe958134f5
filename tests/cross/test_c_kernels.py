"""A C program on each board multiplies with a release of kernels."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgekit.device.runtime.agent.integrity import write_record
from edgekit.device.runtime.agent.kernels import GEMM_TABLE, KERNELS, SPMV_TABLE
from edgekit.device.runtime.agent.store import Links, Store
from edgekit.host.compiler.toolchain.application import write_application
from edgekit.host.compiler.toolchain.kernels import build_tables, c_api_units, kernel_units
from edgekit.host.deploy.bundle.build import file_entries
from edgekit.host.simulator.emulator import spelled
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import CPUS, QEMU
from tests.support.places import few_or_all
from tests.support.product_cases import check_half, check_products
from tests.support.toolchains import compile_for, toolchain_for

pytestmark = pytest.mark.cross
_PROGRAM = Path(__file__).parents[1] / "device" / "products.c"
_RELEASE = "0123456789abcdef"
_DAMAGED, _INCOMPATIBLE = 3, 2


@pytest.mark.parametrize(
    "name", few_or_all(["a57", "rv64gcv", "a76", "a7", "rv64gc", "bpi-f3"], ["a57"])
)
def test_products_of_c_programs_are_numpys(name, tmp_path):
    board, store = load_board(name), Store(tmp_path / "board")
    products, sparse = build_tables(board)
    files = {
        KERNELS: toolchain_for(board).build([*kernel_units(board), *c_api_units(board)]),
        GEMM_TABLE: products,
        SPMV_TABLE: sparse,
    }
    install(store, files)
    write_application(tmp_path, board)
    program, options = tmp_path / "program", [f"-I{tmp_path}", f"-L{tmp_path}", "-ledgekit-app"]
    compile_for(board, _PROGRAM, program, *options, f"-Wl,-rpath,{tmp_path}")

    def run() -> subprocess.CompletedProcess[str]:
        qemu, libraries = QEMU[board.arch]
        words = [
            qemu,
            "-cpu",
            spelled(qemu, CPUS[name]),
            "-L",
            libraries,
            str(program),
            str(store.root),
        ]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    done = run()
    assert done.returncode == 0, done.stderr + done.stdout
    check_products(json.loads(done.stdout))
    check_half(json.loads(done.stdout), board.computes_half)

    another, wanted = build_tables(load_board("a72")), f"expected a table of {board.platform}, "
    for path, data, code, said in (
        (GEMM_TABLE, products[: len(products) // 2], _DAMAGED, "expected the GEMM table"),
        (SPMV_TABLE, sparse[: len(sparse) // 2], _DAMAGED, "expected a table of SpMV"),
        (GEMM_TABLE, another[0], _INCOMPATIBLE, f"{wanted}found one of cortex-a72"),
        (SPMV_TABLE, another[1], _INCOMPATIBLE, f"{wanted}found one of cortex-a72"),
        (KERNELS, Path(sys.executable).read_bytes(), _INCOMPATIBLE, "a library for this board"),
    ):
        install(store, {**files, path: data})
        done = run()
        assert (done.returncode, done.stdout.count("\n")) == (code, 1), done.stderr
        assert path in done.stdout and said in done.stdout


def install(store: Store, files: dict[str, bytes]) -> None:
    """Puts files into service as an agent does."""
    store.create()
    folder = store.releases / _RELEASE
    folder.mkdir(exist_ok=True)
    for path, data in files.items():
        (folder / path).write_bytes(data)
    write_record(folder, SimpleNamespace(files=file_entries(files)))
    store.set_links(Links(_RELEASE, None))
