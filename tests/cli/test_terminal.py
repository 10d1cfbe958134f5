"""Tables are drawn on a terminal; any other output is plain lines."""

from __future__ import annotations

from pathlib import Path

from tests.support.terminal import shown_on_terminal


def test_table_is_drawn() -> None:
    shown = shown_on_terminal("boards")
    assert "─" in shown
    assert "a57" in shown


def test_json_is_the_same_on_a_terminal() -> None:
    assert shown_on_terminal("boards", "--json").startswith("{\r\n")


def test_spinner_goes_away() -> None:
    shown = shown_on_terminal("doctor")
    assert "compiles and runs C" in shown
    assert "..." not in shown


def test_deploy_draws_its_states(face_model: Path) -> None:
    shown = shown_on_terminal("deploy", str(face_model.with_name("okay_nabu.tflite")))
    assert "deploying to local: " in shown
    assert " ...\r\n" not in shown
    assert "? bytes" not in shown
    assert "golden output matched" in shown
