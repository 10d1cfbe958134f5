"""Estimated cycles of matrix products with each GEMM method, on a simulated core."""

from __future__ import annotations

import shutil

import pytest

from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.errors import InputError
from edgekit.host.simulator.products import Multiplication, ProductTimer
from edgekit.host.simulator.target import target_of
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import load_board
from tests.support.fake_emulator import answer, fake_programs, write_emulator

_SHAPE = GemmShape(48, 64, 32)
_GOOD = Method(48, 64, 32, pack_a=False, pack_b=False, mr=4, nr=8)
_NARROW = Method(48, 64, 32, pack_a=False, pack_b=False, mr=1, nr=4)

emulated = [
    pytest.mark.cross,
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(shutil.which, ("qemu-aarch64", "qemu-arm", "qemu-riscv64"))),
        reason="QEMU's user emulators are not installed: apt-get install qemu-user",
    ),
]


@pytest.fixture
def emulate(tmp_path, monkeypatch):
    """emulate(regions, does): fakes an emulator that reports this many regions."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return lambda regions, does="": write_emulator(tmp_path, answer(regions=regions), does)


def test_each_method_is_a_region_of_one_run(emulate, tmp_path):
    emulate(2, f'echo "$@" >> {tmp_path}/said')
    timer = ProductTimer(target_of(load_board("rpi4")), programs=fake_programs(tmp_path))
    found = timer.costs(Multiplication(_SHAPE, "s8", "b", 2), (_GOOD, _NARROW))
    assert [cost.cycles for cost in found] == [1800, 1800]
    (said,) = (tmp_path / "said").read_text().splitlines()
    assert said.endswith(" 1 48 32 64 1 2 48,64,32,4,8,0,0,0 48,64,32,1,4,0,0,0")


def test_products_of_one_kind_share_a_run_and_parts_keep_the_matrices(emulate, tmp_path):
    emulate(5, f'echo "$@" >> {tmp_path}/said')
    timer = ProductTimer(target_of(load_board("rpi4")), programs=fake_programs(tmp_path))
    part, other = GemmShape(8, 64, 16), GemmShape(4, 32, 12)
    parts = ((_SHAPE, _GOOD), (part, _GOOD), (part, _NARROW))
    asked = [
        (Multiplication(_SHAPE), parts),
        (Multiplication(other), ((other, _GOOD), (part, _GOOD))),
    ]
    assert [len(costs) for costs in timer.part_costs(asked)] == [3, 2]
    (said,) = (tmp_path / "said").read_text().splitlines()
    good, narrow = "48,64,32,4,8,0,0,0", "48,64,32,1,4,0,0,0"
    assert said.endswith(
        f" 0 48 32 64 -1 1 {good} @8,16,64 {good} {narrow} =4,12,32 {good} @8,16,64 {good}"
    )


def test_products_of_other_kinds_have_runs_of_their_own(emulate, tmp_path):
    emulate(1, f'echo "$@" >> {tmp_path}/said')
    timer = ProductTimer(target_of(load_board("rpi4")), programs=fake_programs(tmp_path))
    kinds = (Multiplication(_SHAPE), Multiplication(_SHAPE, "s8"))
    asked = [(each, ((_SHAPE, _GOOD),)) for each in kinds]
    assert [len(costs) for costs in timer.part_costs(asked)] == [1, 1]
    assert len((tmp_path / "said").read_text().splitlines()) == 2


def test_a_method_that_was_not_timed_is_a_bug(emulate, tmp_path):
    emulate(1)
    timer = ProductTimer(target_of(load_board("rpi4")), programs=fake_programs(tmp_path))
    with pytest.raises(InputError, match="expected 2 products to be timed, found 1"):
        timer.costs(Multiplication(_SHAPE), (_GOOD, _NARROW))


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("a57", marks=emulated),  # virtual boards run this library, too
        *(pytest.param(core, marks=[*emulated, pytest.mark.exhaustive]) for core in ("a72", "a7")),
    ],
)
def test_a_small_tile_takes_more_cycles_and_a_run_repeats(board):
    timer = ProductTimer(target_of(load_board(board)))
    for product in (Multiplication(_SHAPE), Multiplication(_SHAPE, "s8", "b")):
        good, narrow = timer.costs(product, (_GOOD, _NARROW))
        again = timer.costs(product, (_NARROW, _GOOD))
        assert 0 < good.cycles < narrow.cycles
        assert abs(again[1].cycles - good.cycles) <= good.cycles / 20
        ((part,),) = timer.part_costs([(product, ((GemmShape(24, 64, 32), _GOOD),))])
        assert good.cycles * 0.4 < part.cycles < good.cycles * 0.6


@pytest.mark.parametrize(
    "board", [pytest.param("rv64gc", marks=[*emulated, pytest.mark.exhaustive])]
)
def test_kernels_without_vectors_are_timed_as_well(board):
    (cost,) = ProductTimer(target_of(load_board(board))).costs(Multiplication(_SHAPE), (_GOOD,))
    assert cost.instructions > _SHAPE.m * _SHAPE.n * _SHAPE.k


@pytest.mark.parametrize("board", [pytest.param("a53", marks=[*emulated, pytest.mark.exhaustive])])
def test_the_first_method_of_a_run_is_as_warm_as_the_second(board):
    row = Method(1, 32, 4096, pack_a=False, pack_b=False, mr=1, nr=32)
    timer = ProductTimer(target_of(load_board(board)))
    first, second = timer.costs(Multiplication(GemmShape(1, 32, 4096)), (row, row))
    assert abs(first.cycles - second.cycles) < second.cycles / 20
