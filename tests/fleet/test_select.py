"""Boards matched by a selection, and errors for selections that match none."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.host.deploy.inventory import BoardEntry, add_boards
from edgekit.host.errors import InputError
from edgekit.host.fleet import parse_selection, select

FLEET = (
    BoardEntry("door", "a76", host="10.0.0.9", labels={"site": "lab", "type": "gate"}),
    BoardEntry("pi-1", "a57", host="10.0.0.1", labels={"site": "lab"}),
    BoardEntry("pi-2", "a57", host="10.0.0.2", labels={"site": "field"}),
    BoardEntry("pi-3", "a53", host="10.0.0.3"),
    BoardEntry("tty", "a7", transport="serial", device="/dev/ttyUSB0"),
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    add_boards(FLEET, tmp_path / "edgekit.toml")
    return tmp_path


def names(project: Path, *wanted: str) -> list[str]:
    return [entry.name for entry in select(wanted, project)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([], ["door", "pi-1", "pi-2", "pi-3", "tty"]),
        (["type=a57"], ["pi-1", "pi-2"]),
        (["type=a57,site!=lab"], ["pi-2"]),
        (["type=gate"], ["door"]),
        (["profile=a76"], ["door"]),
        (["name=pi-*"], ["pi-1", "pi-2", "pi-3"]),
        (["name=pi-?, site"], ["pi-1", "pi-2"]),
        (["!site"], ["pi-3", "tty"]),
        (["site!=lab"], ["pi-2", "pi-3", "tty"]),
        (["host=10.0.0.[13]"], ["pi-1", "pi-3"]),
        (["transport=serial"], ["tty"]),
        (["name=tty", "site=lab"], ["door", "pi-1", "tty"]),
        (["type==a53"], ["pi-3"]),
    ],
)
def test_selections(project: Path, wanted: list[str], expected: list[str]) -> None:
    assert names(project, *wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("sit=lab", r"a label that boards have \(host, name, .*\), found 'sit' .nearest: site"),
        ("site!=labb", r"none that is 'labb'; known values: lab \(2\), field \(1\)"),
        ("type=a72", r"found none that is 'a72'; known values: a57 \(2\)"),
        ("type=a53,site=lab", r"of 5 boards, type=a53 has 1, site=lab has 2, and none matches all"),
        ("", "found '' in ''"),
        ("type=a57,", "found '' in 'type=a57,'"),
        ("!site=lab", "found '!site=lab'"),
        ("site = lab", "found 'site = lab'"),
        ("site=", "found 'site='"),
    ],
)
def test_what_selects_nothing_is_named_with_what_there_is(
    project: Path, wanted: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        select([wanted], project)


def test_many_values_are_not_all_listed(project: Path) -> None:
    many = [BoardEntry(f"b{i}", "a57", host=f"h{i}") for i in range(40)]
    add_boards(many, project / "edgekit.toml")
    with pytest.raises(InputError, match=r"b0 \(1\).* and 37 more"):
        select(["name=nobody"], project)


def test_an_empty_inventory_says_how_to_fill_it(tmp_path: Path) -> None:
    (tmp_path / "edgekit.toml").unlink()
    with pytest.raises(InputError, match="fleet add"):
        select([], tmp_path)


def test_two_names_of_one_board_are_refused(project: Path) -> None:
    add_boards([BoardEntry("twin", "a57", host="10.0.0.2", port=22)], project / "edgekit.toml")
    with pytest.raises(InputError, match=r"'pi-2' and 'twin' both at 10.0.0.2:22; .*name!=twin"):
        select(["type=a57"], project)
    assert names(project, "type=a57,name!=twin") == ["pi-1", "pi-2"]


def test_terms_are_shown_as_they_were_written() -> None:
    text = "type=a57,site!=lab,!old,new"
    assert ",".join(map(str, parse_selection(text))) == text


def test_a_type_is_the_profile_unless_a_label_says_otherwise() -> None:
    assert FLEET[0].facts()["type"] == "gate"
    assert FLEET[4].facts() == {
        "name": "tty",
        "profile": "a7",
        "type": "a7",
        "transport": "serial",
    }
