"""Fake systemd and cron programs that record how they were called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SYSTEMCTL = """\
shift
case "$1" in
daemon-reload) ;;
enable) touch "$BOARD/enabled" ;;
disable) rm -f "$BOARD/enabled" ;;
is-enabled) test -e "$BOARD/enabled" ;;
restart)
    eval "set -- $(sed -n 's/^ExecStart=//p' "$HOME/.config/systemd/user/$2")"
    "$@" </dev/null >/dev/null 2>&1 &
    ;;
*) exit 1 ;;
esac
"""
_LOGINCTL = """\
case "$1" in
enable-linger) touch "$BOARD/lingers" ;;
show-user) test -e "$BOARD/lingers" && echo Linger=yes || echo Linger=no ;;
esac
"""
_CRONTAB = """\
case "$1" in
-l) cat "$BOARD/table" 2>/dev/null || { echo "no crontab for me" >&2; exit 1; } ;;
-) cat >"$BOARD/table" ;;
esac
"""
_REFUSES = "exit 1\n"


def board_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, systemd: bool = False, cron: bool = False
) -> Path:
    """Give this process a user whose board has these init systems; return the folder of their
    state."""
    programs = folder / "programs"
    programs.mkdir(parents=True)
    for name, text in (
        ("systemctl", _SYSTEMCTL if systemd else _REFUSES),
        ("loginctl", _LOGINCTL if systemd else _REFUSES),
        ("crontab", _CRONTAB if cron else _REFUSES),
    ):
        program = programs / name
        program.write_text(f"#!/bin/sh\nBOARD='{folder}'\n{text}")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    if systemd:  # user units are below HOME
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return folder
