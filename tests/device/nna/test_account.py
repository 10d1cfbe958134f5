"""NNA cycle accounts: savings from ping-pong buffers, counters, and derived figures."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.device.runtime.arrays.nna import emulate_conv3x3, emulate_matmul
from edgekit.device.runtime.arrays.nna_account import NnaAccount, trace_document, vector_cycles
from tests.support.nna_cases import CHIPS, NNA1, NNA2, operands

_GRID = [
    (m, k, n)
    for m in (1, 2, 7, 20)
    for k in (1, 4, 9, 10, 18, 28, 64)
    for n in (5, 32, 64, 128, 173, 256, 300, 777, 1024, 4096)
]


def account(m: int, k: int, n: int, chip=NNA2) -> NnaAccount:
    found = emulate_matmul(*operands(m, k, n), chip=chip).account
    assert found
    return found


@pytest.mark.parametrize("name", ["nna1", "nna2", "slow array"])
def test_overlap_takes_no_more_than_the_longer_stream_and_fill_and_drain(name):
    for m, k, n in _GRID:
        found = account(m, k, n, CHIPS[name])
        assert found.cycles <= found.bound, (m, k, n)
        # Fill and drain cover a single step, whatever the size.
        assert found.fill_cycles + found.drain_cycles <= 700, (m, k, n)


@pytest.mark.parametrize("name", ["nna1", "nna2", "slow array"])
@pytest.mark.parametrize("stride", [1, 2])
def test_the_same_holds_for_convolutions(name, stride):
    for height, width, inputs, outputs in ((3, 3, 1, 1), (9, 20, 40, 70), (8, 64, 32, 32)):
        x, w = operands(height * width, inputs, outputs * 9)
        x, w = x.reshape(height, width, inputs), w.reshape(outputs, 3, 3, inputs)
        found = emulate_conv3x3(x, w, stride=stride, padding=1, chip=CHIPS[name]).account
        assert found and found.cycles <= found.bound


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 20),
    st.integers(1, 60),
    st.integers(1, 2000),
    st.sampled_from([4, 8]),
    st.sampled_from([64, 256, 512, 1024, 2048, 4096]),
)
def test_overlap_helps_on_every_chip(m, k, n, points, speed):
    """If thread and array are almost equally busy, one step cannot compensate for another and
    `bound` may be exceeded. On every chip, however, overlap never costs cycles."""
    base = NNA1 if points == 4 else NNA2
    found = account(m, k, n, dataclasses.replace(base, macs_per_cycle=speed))
    least = max(found.load_cycles, found.mac_cycles + found.tail_cycles)
    assert least <= found.cycles <= found.serial_cycles
    assert found.serial_cycles <= found.load_cycles + found.mac_cycles


def test_without_overlap_every_mac_is_waited_for():
    found = account(8, 72, 512)
    macs = found.instructions["nnmacg"]
    assert found.serial_cycles > found.cycles
    assert found.serial_cycles - found.load_cycles <= macs * NNA2.mac_cycles
    assert found.mac_cycles == macs * NNA2.mac_cycles


@pytest.mark.parametrize(("chip", "groups"), [(NNA1, 2), (NNA2, 4)])
def test_instructions_and_bytes_are_those_of_the_patent(chip, groups):
    m, k, n = 3, 18, 32 * groups * 5
    found, steps = account(m, k, n, chip), 5
    count = found.instructions
    periods = m * 2
    assert count["nnmacg"] == periods * steps
    assert count["nndww"] == periods * 144
    # Per patch and group: two writes for each of three rows; nine pixels loaded.
    assert count["nndwf"] == periods * steps * groups * 6
    assert count["nndrdocb"] == periods * steps * groups * 2
    assert count["add"] == count["nndrdocb"] // 2  # the first nine values start the sum
    assert count["sa"] == 2 * count["nndrdocb"]
    assert count["la"] == periods * (288 + steps * groups * 9) + 2 * count["add"]
    assert found.bytes_loaded == 32 * count["la"] and found.bytes_stored == 32 * count["sa"]
    assert found.wram_bytes == periods * 9216 == found.weight_image_bytes
    assert found.weight_loads == periods
    assert found.weight_loads_saved == periods * (groups * steps - 1)


def test_the_diagonal_and_stride_two_make_one_in_64_useful():
    found = account(4, 18, 256)
    assert found.macs_done == 64 * found.macs_useful
    assert found.document()["useful_share"] == 1 / 64


def test_all_products_of_a_whole_convolution_are_useful():
    x, w = operands(10 * 18, 64, 9 * 32)
    found = emulate_conv3x3(x.reshape(10, 18, 64), w.reshape(32, 3, 3, 64)).account
    assert found and found.macs_done == found.macs_useful == 8 * 16 * 9 * 64 * 32
    assert found.better == "nna"


def test_tail_channels_are_computed_outside_and_counted():
    whole, tailed = account(4, 18, 128), account(4, 18, 129)
    assert whole.tail_cycles == 0 and tailed.tail_cycles == vector_cycles(NNA2, 4, 18, 1)
    assert tailed.cycles == whole.cycles + tailed.tail_cycles
    alone = account(4, 18, 31)
    assert alone.cycles == alone.tail_cycles == alone.vector_cycles and not alone.macs_done
    assert alone.better == "vector"


def test_one_weight_set_is_waited_for():
    one, two = account(4, 36, 640, CHIPS["one weight set"]), account(4, 36, 640, NNA1)
    assert one.stalls["weights"] > 0 and two.stalls["weights"] == 0
    assert one.cycles > two.cycles


def test_a_masked_last_group_loads_only_what_it_needs():
    assert account(1, 10, 128).bytes_loaded < account(1, 18, 128).bytes_loaded
    assert account(1, 10, 128).wram_bytes == 9216 + 1024


def test_the_document_is_json_and_the_trace_opens_in_viewers():
    done = emulate_matmul(*operands(1, 9, 128), trace=100_000)
    assert done.account
    document = json.loads(json.dumps(done.account.document()))
    assert document["better"] == done.account.better and document["stalls"]
    trace = json.loads(json.dumps(trace_document(done.events, "a test")))["traceEvents"]
    named = {e["tid"]: e["args"]["name"] for e in trace if e["name"] == "thread_name"}
    assert set(named.values()) == {"vector", "nna", "array", "stall"}
    bars = [e for e in trace if e["ph"] == "X"]
    assert len(bars) == len(done.events)
    for unit in named:
        ends = 0
        for bar in (b for b in bars if b["tid"] == unit):
            assert bar["ts"] >= ends, bar  # bars of a unit must not overlap
            ends = bar["ts"] + bar["dur"]
    # The trace has every instruction, and the last one ends with the account.
    assert len([b for b in bars if b["cat"] != "stall"]) == sum(done.account.instructions.values())
    assert done.account.cycles == max(b["ts"] + 1 for b in bars if b["cat"] != "array")


def test_a_trace_keeps_no_more_events_than_asked_for():
    done = emulate_matmul(*operands(1, 9, 128), trace=17)
    assert len(done.events) == 17
