"""Validating estimates against published latencies: rows compared, and figures reported."""

from __future__ import annotations

import json

import pytest

from edgekit.host.errors import InputError
from edgekit.host.simulator.validate import model_of
from edgekit.host.simulator.validate_report import (
    NetworkResult,
    Table,
    errors,
    kendall,
    network_rows,
    proofs,
    regressions,
    spread,
    spread_of,
    summary,
    validation_toml,
    write_core,
)
from edgekit.host.simulator.witness import (
    WITNESSES,
    Published,
    Witness,
    input_size,
    networks,
    published,
    row_of,
)
from edgekit.kb.targets.core import FOLDER, parse_core

_PI = Witness("rpi3", "Raspberry Pi 3", "a53", "rpi3", 1400, "1.0")
_OLD = Witness("old", "Old", "a53", "rpi3", 1200, "1.0", early=True)


def _table(witness: Witness = _PI) -> Table:
    results = (
        NetworkResult("blazeface", 22.0, 20.0),
        NetworkResult("nanodet_m", 95.0, 100.0),
        NetworkResult("squeezenet", 300.0, 100.0),
        NetworkResult("squeezenet_int8", 60.0, 50.0),
    )
    return Table(witness, 1, results)


def test_errors_are_those_of_networks_that_nothing_is_fitted_to():
    assert errors(_table().proof("float")) == pytest.approx((7.5, 10.0))
    assert errors(_table().proof("int8")) == pytest.approx((20.0, 20.0))
    assert errors([]) == (0.0, 0.0)


def test_kendall_s_tau_is_one_for_the_same_order_and_minus_one_for_the_other():
    assert kendall([(1, 10), (2, 20), (3, 30)]) == (1, 3)
    assert kendall([(1, 30), (2, 20), (3, 10)]) == (-1, 3)
    assert kendall([]) == (1, 0)


def test_pairs_that_boards_of_a_core_do_not_tell_apart_are_left_out_of_the_second_tau():
    swapped = Table(
        _PI,
        1,
        (
            NetworkResult("a", 20.0, 21.0),
            NetworkResult("b", 21.0, 20.0),
            NetworkResult("c", 50, 60),
        ),
    )
    assert swapped.rank() == (pytest.approx(1 / 3), 3)
    assert swapped.rank(beyond=6.0) == (1, 2)
    rows = [
        Published("Raspberry Pi 3 Model B+", "a53 1.4 GHz", 1, {"a": 10.0, "b": 10.0}),
        Published("MSM8916", "a53 1.2 GHz", 1, {"a": 14 / 1.2 / 1.06, "b": 14 / 1.2 / 1.08}),
    ]
    assert spread_of("a53", rows) == pytest.approx(7.0)
    assert spread_of("a76", rows) == pytest.approx(7.0)  # of other cores: a76 has one board
    (row,) = summary([swapped], rows)
    assert (row["kendall_tau"], row["clear_tau"], row["clear_pairs"]) == ("0.33", "1.00", "2")


def test_the_error_of_a_core_is_computed_from_rows_as_new_as_the_kernels():
    assert proofs([_table(), _table(_OLD)], "a53") == [_table()]
    assert proofs([_table(_OLD)], "a53") == [_table(_OLD)]


def test_what_is_recorded_of_a_core_can_be_read_again(tmp_path):
    path = tmp_path / "a53.toml"
    path.write_text((FOLDER / "a53.toml").read_text().split("[[validation]]")[0])
    for date in ("2026-01-01", "2026-02-02"):
        write_core(path, validation_toml([_table()], "a53", date))
    core = parse_core("a53", path.read_text())
    found = {v.kind: (v.networks, v.median_percent, v.worst_percent) for v in core.validation}
    assert found == {"float": (2, 7.5, 10.0), "int8": (1, 20.0, 20.0)}
    assert {v.date for v in core.validation} == {"2026-02-02"}


def test_errors_of_several_threads_stand_beside_those_of_one(tmp_path):
    path = tmp_path / "a53.toml"
    path.write_text((FOLDER / "a53.toml").read_text().split("[[validation]]")[0])
    write_core(path, validation_toml([_table()], "a53", "2026-01-01"))
    four = Table(_PI, 4, (NetworkResult("blazeface", 12.0, 10.0),))
    for date in ("2026-02-02", "2026-03-03"):
        write_core(path, validation_toml([four], "a53", date))
    found = {
        (v.kind, v.threads): (v.median_percent, v.date)
        for v in parse_core("a53", path.read_text()).validation
    }
    assert found == {
        ("float", 1): (7.5, "2026-01-01"),
        ("float", 4): (20.0, "2026-03-03"),
        ("int8", 1): (20.0, "2026-01-01"),
    }


def test_a_row_for_each_kind_of_networks_and_each_network():
    errors_of = {row["kind"]: row["worst_percent"] for row in summary([_table()], [])}
    assert errors_of == {"float": "10", "int8": "20"}
    rows = {row["network"]: (row["ratio"], row["fitted"]) for row in network_rows([_table()])}
    assert rows["squeezenet"] == ("3.00", "yes")
    assert rows["blazeface"] == ("1.10", "no")


def test_published_boards_of_a_core_are_held_against_each_other():
    rows = [
        Published("Raspberry Pi 3 Model B+", "a53 1.4 GHz", 1, {"blazeface": 10.0}),
        Published("MSM8916", "a53 1.2 GHz", 1, {"blazeface": 10.0}),
    ]
    (row,) = spread(rows, WITNESSES)
    assert (row["core"], row["networks"], row["median_percent"]) == ("a53", "1", "17")


def test_a_core_that_got_worse_is_named():
    assert regressions([_table()], {"a53": (7.0, 9.0), "a72": (1.0, 1.0)}) == []
    assert regressions([_table()], {"a53": (5.0, 9.0)}) == [
        "a53: expected a median error of 5.0% and at worst 9.0%, found 7.5% and 10.0%"
    ]


def test_rows_are_found_by_board_core_and_threads(tmp_path):
    folder = tmp_path / "data" / "board_times"
    (folder / "networks").mkdir(parents=True)
    (folder / "networks" / "blazeface.param").write_text("")
    row = {"board": "Rockchip RK3399", "threads": 1, "min_ms": {"blazeface": 3}}
    rows = [row | {"core": "a72 1.8 GHz"}, row | {"core": "a53 1.5 GHz"}]
    (folder / "published.json").write_text(json.dumps({"rows": rows}))
    little = next(w for w in WITNESSES if w.name == "rk3399-little")
    found = row_of(little, published(tmp_path), 1)
    assert found is not None
    assert (found.core, found.min_ms) == ("a53 1.5 GHz", {"blazeface": 3.0})
    assert row_of(little, published(tmp_path), 4) is None
    assert list(networks(tmp_path)) == ["blazeface"]
    assert input_size("blazeface") == 128


@pytest.mark.parametrize("text", ["", "[]", '{"rows": [{}]}', '{"rows": 7}'])
def test_published_latencies_that_cannot_be_read_are_one_line(tmp_path, text):
    (tmp_path / "data" / "board_times").mkdir(parents=True)
    (tmp_path / "data" / "board_times" / "published.json").write_text(text)
    with pytest.raises(InputError, match="EDGEKIT_EXTRA_DATA=FOLDER") as error:
        published(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("witness", WITNESSES, ids=lambda w: w.name)
def test_every_published_board_has_a_model(witness):
    core = model_of(witness)
    assert (core.name, core.clock_mhz) == (witness.name, witness.clock_mhz)


def test_a_board_that_was_lent_a_profile_does_not_get_what_was_fitted_to_its_cores():
    witnesses = {w.name: w for w in WITNESSES}
    assert model_of(witnesses["rpi3"]).dram.turn_ns > 0
    assert model_of(witnesses["sd410"]).dram.turn_ns == 0
