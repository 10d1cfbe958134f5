"""Units of board profiles: values have an origin, are consistent and inherited individually."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from edgekit.device.runtime.arrays.nna_chip import NNA2
from edgekit.kb.targets.board import FOLDER, UnknownBoardError, load_board, load_profile
from edgekit.kb.targets.units import parse_nna, parse_unit

GOOD: dict[str, Any] = {
    name: {"value": getattr(NNA2, name), "assumption": "a test"}
    for name in NNA2.__dataclass_fields__
}


def changed(**values: Any) -> dict[str, Any]:
    table = copy.deepcopy(GOOD)
    table.update(values)
    return {name: entry for name, entry in table.items() if entry is not None}


def test_the_default_chip_is_that_of_the_profile():
    assert load_board("nna2").nna.chip == NNA2
    assert load_board("nna1").nna.chip.output_points == 4


def test_every_value_says_where_it_comes_from():
    for name in ("nna1", "nna2"):
        board = load_board(name)
        assert board.units == ("cpu", "nna") and board.arch == "aarch64"
        assert [o.name for o in board.nna.origins] == list(NNA2.__dataclass_fields__)
        kinds = {o.name: o.kind for o in board.nna.origins}
        assert kinds["output_points"] == "source" and kinds["load_latency"] == "assumption"


def test_a_board_without_units_has_its_cores():
    assert load_board("a53").units == ("cpu",) and load_board("a53").nna is None


def test_profiles_with_units_can_be_compared_and_hashed():
    assert hash(load_board("nna2")) != hash(load_board("nna1"))


def core(**values: Any) -> dict[str, Any]:
    names = ("clock_mhz", "bytes_per_cycle", "start_us", "handover_us", "handover_kib_us")
    names = (*names, "wake_us", "f32_per_cycle", "s8_per_cycle", "elements_per_cycle")
    table = {name: {"value": 2.5, "assumption": "a test"} for name in names}
    return {k: v for k, v in ({"kind": "cpu"} | table | values).items() if v is not None}


def test_clusters_are_units_beside_the_core():
    board = load_board("rk3588")
    assert board.units == ("cpu", "little") and [u.name for u in board.speeds] == ["cpu", "little"]
    fast, slow = board.speeds
    assert {fast.kind, slow.kind} == {"core"} and fast.f32_per_cycle > slow.f32_per_cycle > 0
    assert {o.name: o.kind for o in fast.origins}["f32_per_cycle"] == "source"
    assert hash(board) != hash(load_board("a55"))


def test_a_core_without_sources_is_assumed():
    (unit,) = load_board("a57").speeds
    assert (unit.name, unit.kind) == ("cpu", "cpu")
    assert {origin.kind for origin in unit.origins} == {"assumption"}
    assert [u.name for u in load_board("nna1").speeds] == ["cpu"]


def test_speeds_are_read_as_they_stand():
    unit = parse_unit("here", "little", core(start_us={"value": 0, "source": "s"}))
    assert (unit.clock_mhz, unit.start_us, unit.elements_per_cycle) == (2.5, 0.0, 2.5)
    matrix = core(kind="matrix", elements_per_cycle=None)
    assert parse_unit("here", "mpu", matrix).elements_per_cycle == 0


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (core(clock_mhz=None), "expected clock_mhz in [units.x], found none"),
        (core(kind="gpu"), "units.x.kind of cpu, core, matrix, vector, memory"),
        (core(kind="vector"), "unknown values f32_per_cycle, s8_per_cycle of [units.x]"),
        (core(clock_mhz={"value": 0, "source": "s"}), "units.x.clock_mhz to be a number above 0"),
        (core(clock_mhz={"value": float("nan"), "source": "s"}), "found nan"),
        (core(clock_mhz={"value": True, "source": "s"}), "found True"),
        (core(clock_mhz={"value": "fast", "source": "s"}), "found 'fast'"),
        (core(clock_mhz=2400), "expected units.x.clock_mhz = { value"),
        ("fast", "found 'fast'"),
    ],
)
def test_a_unit_that_cannot_be_is_refused_in_one_line(table, found):
    with pytest.raises(ValueError) as error:
        parse_unit("here", "x", table)
    assert found in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (changed(fram_bytes={"value": 1024, "source": "s"}), "hold the windows of a MAC (1728"),
        (changed(wram_bytes={"value": 9215, "source": "s"}), "weights of a MAC (9216 bytes)"),
        (changed(macs_per_cycle={"value": 1000, "source": "s"}), "to divide the 73728"),
        (changed(output_points={"value": 6, "source": "s"}), "4 (NNA 1) or 8 (NNA 2), found 6"),
        (changed(load_latency={"value": 0, "source": "s"}), "load_latency"),
        (changed(add_latency={"value": "two", "source": "s"}), "found 'two'"),
        (changed(add_latency={"value": True, "source": "s"}), "found True"),
        (changed(add_latency={"value": 1 << 40, "source": "s"}), "add_latency"),
        (changed(add_latency=2), "units.nna.add_latency = { value"),
        (changed(add_latency={"value": 2}), "assumption"),
        (changed(add_latency={"value": 2, "source": " "}), "assumption"),
        (changed(add_latency={"value": 2, "source": "s", "assumption": "a"}), "found {'value'"),
        (changed(add_latency=None), "expected add_latency in [units.nna], found none"),
        (changed(speed={"value": 2, "source": "s"}), "unknown values speed"),
        ([1], "expected a table [units.nna], found [1]"),
    ],
)
def test_a_bad_table_is_one_line_that_names_the_value(table, found):
    with pytest.raises(ValueError, match=r"^board x: ") as error:
        parse_nna("board x", table)
    assert found in str(error.value) and "\n" not in str(error.value)


def test_a_profile_overrides_one_value_at_a_time(tmp_path):
    for name in ("generic-aarch64", "a53", "nna1"):
        text = (FOLDER / f"{name}.toml").read_text()
        (tmp_path / f"{name}.toml").write_text(text)
    head = 'description = "mine"\n'
    own = '[units.nna]\nadd_latency = { value = 7, source = "measured" }\n'
    (tmp_path / "mine.toml").write_text(f'{head}inherits = "nna1"\n{own}')
    (tmp_path / "odd.toml").write_text(f'{head}inherits = "a53"\n[units.gpu]\n')
    (tmp_path / "small.toml").write_text(f'{head}inherits = "nna1"\n{own.replace("add", "mul")}')
    mine, base = (load_profile(name, tmp_path).nna.chip for name in ("mine", "nna1"))
    assert mine.add_latency == 7 and mine.load_latency == base.load_latency
    with pytest.raises(UnknownBoardError, match=r"expected units\.gpu\.kind of cpu, core"):
        load_profile("odd", tmp_path)
    with pytest.raises(UnknownBoardError, match="'small': unknown values mul_latency"):
        load_profile("small", tmp_path)
