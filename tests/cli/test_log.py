"""The log of commands, and what of it is shown."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.cli import log


def test_the_log_tells_commands_and_tracebacks(edgekit: Any, tmp_path: Path) -> None:
    edgekit("status")
    edgekit("compile", "nosuch.tflite")
    log = (tmp_path / "home" / "state" / "edgekit.log").read_text()
    assert "edgekit status" in log
    assert "exit code 2" in log
    assert "Traceback" in log


def test_the_folders_of_the_log_are_made(
    edgekit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "other" / "home"))
    edgekit("boards", "--json")
    assert (tmp_path / "other" / "home" / "state" / "edgekit.log").is_file()


def test_the_log_stays_small(edgekit: Any, tmp_path: Path) -> None:
    for _ in range(8):
        edgekit("compile", "x" * 300_000)  # each logs the command and a traceback
    files = list((tmp_path / "home" / "state").iterdir())
    assert 2 <= len(files) <= 3
    assert all(file.stat().st_size <= 1 << 20 for file in files)


def test_help_leaves_no_log(edgekit: Any, tmp_path: Path) -> None:
    edgekit("boards", "--help")
    edgekit("--version")
    assert not (tmp_path / "home" / "state").exists()


def test_a_log_that_cannot_be_written_keeps_nobody_from_work(edgekit: Any, tmp_path: Path) -> None:
    (tmp_path / "home" / "state").write_text("in the way")
    done = edgekit("boards", "--json")
    assert (done.code, done.err) == (0, "")


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A log in a folder of its own, which ends with the test."""
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    yield
    logger = logging.getLogger("edgekit")
    for handler in tuple(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


@pytest.mark.usefixtures("apart")
def test_what_a_server_logs_while_it_goes_on_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error that ends a command is shown by `main`, in its own way."""
    log.start(["fleet", "serve"], verbose=False)
    try:
        raise OSError("full")
    except OSError as error:
        logging.getLogger("edgekit.host.fleet").error("nothing can be stored", exc_info=error)
        log.failed(error, 2)
    assert capsys.readouterr().err == "edgekit: nothing can be stored\n"
    assert log.log_file().read_text().count("\nOSError: full") == 2
