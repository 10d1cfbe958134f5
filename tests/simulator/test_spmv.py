"""Estimated cycles of sparse matrix-vector products in block formats, on a simulated core."""

from __future__ import annotations

import os
import shutil

import pytest

from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.spmv_matrices import open_matrix
from edgekit.host.simulator.sparse import spmv_costs
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board
from tests.support.fake_emulator import answer, fake_programs, write_emulator

_BY_DIAGONALS = BlockSettings(16)
_BY_ROWS = BlockSettings(16, diagonal=False, wide_from=1)


@pytest.fixture
def emulate(tmp_path, monkeypatch):
    """emulate(regions, does): fakes an emulator that reports this many regions."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return lambda regions, does="": write_emulator(tmp_path, answer(regions=regions), does)


def test_each_form_is_a_region_of_one_run(emulate, tmp_path):
    emulate(2, f'echo "$@" >> {tmp_path}/said')
    matrix = open_matrix("banded:40:3", "float64")
    forms = (_BY_DIAGONALS, _BY_ROWS)
    target, programs = target_of(load_board("rpi4")), fake_programs(tmp_path)
    found = spmv_costs(target, matrix, forms, 2, 60.0, programs)
    assert [cost.cycles for cost in found] == [1800, 1800]
    (said,) = (tmp_path / "said").read_text().splitlines()
    assert said.endswith(" 1 40 40 2 320 16,4096,0,1,1,0,0 16,4096,1,0,1,0,0")


def test_a_form_that_was_not_timed_is_a_bug(emulate, tmp_path):
    emulate(1)
    matrix = open_matrix("banded:40:3", "float32")
    target, programs = target_of(load_board("rpi4")), fake_programs(tmp_path)
    with pytest.raises(InputError, match="expected 2 forms of a matrix to be timed, found 1"):
        spmv_costs(target, matrix, (_BY_ROWS, _BY_ROWS), 1, 60.0, programs)


def _emulated(test):
    """Marks of tests that run kernels under the real emulators."""
    test = pytest.mark.cross(pytest.mark.slow(test))
    return pytest.mark.skipif(
        not all(map(shutil.which, ("qemu-aarch64", "qemu-arm", "qemu-riscv64"))),
        reason="QEMU's user emulators are not installed: apt-get install qemu-user",
    )(test)


@_emulated
@pytest.mark.parametrize(
    ("dtype", "board"),
    [
        ("float32", "a57"),
        *(
            pytest.param(*each, marks=pytest.mark.exhaustive)
            for each in (
                *(("int8", "a7"), ("float32", "bpi-f3")),
                *(("int8", "a72"), ("float32", "a7"), ("int8", "bpi-f3")),
            )
        ),
    ],
)
def test_diagonals_of_a_band_take_fewer_cycles_than_its_rows(board, dtype):
    matrix = open_matrix("banded:500:5", dtype)
    forms = (_BY_DIAGONALS, _BY_ROWS, _BY_DIAGONALS)
    good, slow, again = spmv_costs(target_of(load_board(board)), matrix, forms, 1, 600.0)
    assert 0 < good.cycles < slow.cycles
    assert abs(again.cycles - good.cycles) <= good.cycles / 20


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@_emulated
def test_cycles_do_not_depend_on_the_number_of_cores_here():
    matrix, target = open_matrix("banded:500:5", "float32"), target_of(load_board("a57"))
    forms = (_BY_DIAGONALS, _BY_ROWS, _BY_DIAGONALS)
    cores = os.sched_getaffinity(0)
    on_all = spmv_costs(target, matrix, forms, 1, 600.0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        on_one = spmv_costs(target, matrix, forms, 1, 600.0)
    finally:
        os.sched_setaffinity(0, cores)
    assert on_one == on_all
