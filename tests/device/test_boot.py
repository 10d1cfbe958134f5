"""Starting an application at boot: by systemd, else cron, else a line for the user to install."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.boot import CRON, NOBODY, SYSTEMD, Boot
from tests.support.init_systems import board_with

ODD = '50% of "it" $HOME'


def test_systemd_of_the_user_starts_it_also_without_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = board_with(tmp_path, monkeypatch, systemd=True, cron=True)
    boot = Boot(tmp_path / ODD, ["touch", str(tmp_path / ODD)], tmp_path / "lock", "app-supervise")
    assert (boot.who(), boot.start()) == (NOBODY, False)
    assert (boot.arrange(), boot.arrange(), boot.who()) == (SYSTEMD, SYSTEMD, SYSTEMD)
    assert (board / "lingers").exists()
    (unit,) = (tmp_path / ".config/systemd/user").iterdir()
    words = rf'ExecStart="touch" "{tmp_path}/50%% of \"it\" $$HOME"'
    assert words in unit.read_text().splitlines()

    boot.forget()
    assert (boot.who(), unit.exists(), (board / "enabled").exists()) == (NOBODY, False, False)
    assert not (board / "table").exists()


def test_a_unit_of_another_command_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board_with(tmp_path, monkeypatch, systemd=True)
    Boot(tmp_path, ["false"], tmp_path / "lock", "app-supervise").arrange()
    boot = Boot(tmp_path, ["true"], tmp_path / "lock", "app-supervise")
    assert (boot.who(), boot.arrange()) == (NOBODY, SYSTEMD)
    (unit,) = (tmp_path / ".config/systemd/user").iterdir()
    assert 'ExecStart="true"' in unit.read_text()


def test_cron_starts_it_where_systemd_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = board_with(tmp_path, monkeypatch, cron=True)
    table = board / "table"
    table.write_text("0 3 * * * backup")  # no final newline, as some editors write it
    Boot(tmp_path, ["false"], tmp_path / "lock", "app-supervise").arrange()
    boot = Boot(tmp_path, ["touch", str(tmp_path / ODD)], tmp_path / "lock", "app-supervise")
    assert (boot.who(), boot.arrange(), boot.arrange()) == (NOBODY, CRON, CRON)
    backup, row, minute = table.read_text().splitlines()
    assert backup == "0 3 * * * backup"
    assert row.startswith("@reboot touch ")
    assert "50\\% of" in row  # cron treats an unescaped % as a newline

    command = row[len("@reboot ") :].replace("\\%", "%").replace(" &", "")
    subprocess.run(["sh", "-c", command], check=True)
    assert (tmp_path / ODD).exists()

    (tmp_path / ODD).unlink()
    command = minute[len("* * * * * ") :].replace("\\%", "%").replace(" &", "")
    (tmp_path / "lock").write_text("999999999 1\n")  # left by a killed supervisor
    subprocess.run(["sh", "-c", command], check=True)
    assert (tmp_path / ODD).exists()
    boot.forget()
    assert (boot.who(), table.read_text()) == (NOBODY, "0 3 * * * backup\n")


def test_a_table_that_cannot_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board_with(tmp_path, monkeypatch)
    boot = Boot(tmp_path, ["true"], tmp_path / "lock", "app-supervise")
    assert (boot.arrange(), boot.who()) == (NOBODY, NOBODY)
    boot.forget()


def test_a_board_without_such_programs_needs_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    boot = Boot(tmp_path, ["python3", "a b"], tmp_path / "lock", "app-supervise")
    assert (boot.arrange(), boot.line) == (NOBODY, "python3 'a b' >/dev/null 2>&1 &")
