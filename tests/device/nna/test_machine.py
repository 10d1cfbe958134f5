"""Each instruction of the reference (Python) emulator."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.device.runtime.arrays.nna_account import CAUSES
from edgekit.device.runtime.arrays.nna_machine import NnaMachine
from tests.support.nna_cases import NNA1, NNA2

PIXELS = np.arange(-64, 64, dtype=np.int8).reshape(4, 32)


def stalls(machine: NnaMachine) -> dict[str, int]:
    found = dict(zip(CAUSES, machine.counters().stalls, strict=True))
    return {cause: cycles for cause, cycles in found.items() if cycles}


@pytest.fixture
def machine() -> NnaMachine:
    return NnaMachine(NNA2, trace=1000)


def test_a_register_holds_two_pixels_and_a_load_fills_one_half(machine):
    machine.la(3, 1, PIXELS[0])
    before = machine.registers[3, :32].copy()
    machine.la(3, 1, PIXELS[1])
    np.testing.assert_array_equal(machine.registers[3, :32], before)
    np.testing.assert_array_equal(machine.registers[3, 32:], PIXELS[1])


def test_the_write_pointer_jumps_to_the_next_row_by_itself(machine):
    machine.nncfg("jump", 4)
    for half, pixel in enumerate(PIXELS[:2]):
        machine.la(0, half, pixel)
    for _ in range(5):
        machine.nndwf(1, 0)
    for row, column in ((0, 0), (0, 2), (1, 0), (1, 2), (2, 0)):
        np.testing.assert_array_equal(machine.fram[1, row, column : column + 2], PIXELS[:2])
    assert np.all(machine.fram[1, :2, 4:] == 0x55) and np.all(machine.fram[0] == 0x55)


def fill(machine: NnaMachine, fram: int, value: int) -> None:
    machine.nncfg("jump", machine.chip.columns)
    for half in (0, 1):
        machine.la(0, half, np.full(32, value, np.int8))
    for _ in range(3 * machine.chip.columns // 2):
        machine.nndwf(fram, 0)


def write_ones(machine: NnaMachine, weights: int) -> None:
    for half in (0, 1):
        machine.la(1, half, np.ones(32, np.int8))
    for _ in range(144):
        machine.nndww(weights, 1)


@pytest.mark.parametrize("taps", [0b1, 0b100, 0b111111111])
def test_the_mask_leaves_taps_out(machine, taps):
    fill(machine, 0, 3)
    write_ones(machine, 0)
    machine.nncfg("mask", taps)
    machine.nnmacg(0, 0)
    assert np.all(machine.results[0] == 3 * 32 * taps.bit_count())


def test_windows_of_stride_two_start_at_every_second_column():
    machine = NnaMachine(NNA1)
    machine.nncfg("stride", 2)
    machine.nncfg("mask", 1)
    machine.nncfg("jump", 10)
    write_ones(machine, 0)
    for pair in range(5):
        for half in (0, 1):
            machine.la(0, half, np.full(32, 2 * pair + half, np.int8))
        machine.nndwf(0, 0)
    machine.nnmacg(0, 0)
    assert [int(point[0]) // 32 for point in machine.results[0]] == [0, 2, 4, 6]


def test_a_result_is_waited_for_until_its_mac_is_done(machine):
    machine.nnmacg(0, 0)
    machine.nndrdocb(5, 0, 0, 0)
    assert stalls(machine) == {"result": NNA2.mac_cycles - 1}
    assert machine.counters().load == 2


def test_the_other_fram_can_be_filled_meanwhile_but_not_the_one_in_use(machine):
    machine.nnmacg(0, 0)
    machine.nndwf(1, 0)
    assert not stalls(machine)
    machine.nndwf(0, 0)
    assert stalls(machine) == {"fram": NNA2.mac_cycles - 2}


def test_weights_in_use_are_not_overwritten_but_the_other_set_can_be(machine):
    machine.nnmacg(0, 0)
    machine.nndww(1, 0)
    assert not stalls(machine)
    machine.nndww(0, 0)
    assert stalls(machine) == {"weights": NNA2.mac_cycles - 2}


def test_the_array_takes_one_mac_at_a_time(machine):
    machine.nnmacg(0, 0)
    machine.nnmacg(1, 1)
    assert stalls(machine) == {"array": NNA2.mac_cycles - 1}


def test_a_mac_waits_for_what_was_just_written(machine):
    machine.nndwf(0, 0)
    machine.nnmacg(0, 0)
    assert stalls(machine) == {"settle": NNA2.write_latency - 1}


def test_an_operand_is_waited_for(machine):
    machine.la(0, 0, PIXELS[0])
    machine.add(1, 0, 0)
    memory = np.zeros(32, np.int8)
    machine.sa(1, 0, memory)
    waited = NNA2.load_latency - 1 + NNA2.add_latency - 1
    assert stalls(machine) == {"operand": waited}
    names = [(e.unit, e.name, e.start) for e in machine.events]
    assert names == [
        ("vector", "la", 0),
        ("stall", "operand", 1),
        ("vector", "add", NNA2.load_latency),
        ("stall", "operand", NNA2.load_latency + 1),
        ("vector", "sa", NNA2.load_latency + NNA2.add_latency),
    ]


def test_a_setting_that_changes_nothing_costs_nothing(machine):
    for _ in range(3):
        machine.nncfg("mask", 7)
    assert machine.counts["nncfg"] == 1


def test_sums_are_added_modulo_2_to_the_32(machine):
    words = machine.registers.view(np.int32)
    words[0], words[1] = np.int32(2**31 - 1), np.int32(1)
    machine.add(2, 0, 1)
    assert np.all(words[2] == np.int32(-(2**31)))
