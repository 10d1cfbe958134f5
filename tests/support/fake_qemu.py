"""QEMU for virtual boards that are up at once: a program that answers what edgekit asks QEMU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from edgekit.host.debian.packages import boards_cache
from edgekit.host.virtual.image import Image, recipe_hash
from edgekit.host.virtual.machines import virtual_board

SSH_PORT = 40022
CONSOLE_PORT = 40023

_PROGRAM = f"""#!{sys.executable}
import json, os, socket, sys, threading

def listen(name):
    (place,) = [a for a in sys.argv if f"/{{name}},server=on" in a]
    server = socket.socket(socket.AF_UNIX)
    server.bind(place.split("path=")[-1].removeprefix("unix:").partition(",")[0])
    server.listen()
    return server

def shell(server):
    while True:
        port, _ = server.accept()
        port.makefile().readline()
        port.sendall(b"=0\\n")

def control(server):
    answers = {{
        "human-monitor-command": "TCP[HOST_FORWARD]  12  127.0.0.1  {SSH_PORT}  10.0.2.15  22",
        "query-chardev": [{{"label": "console", "filename": "tcp:127.0.0.1:{CONSOLE_PORT}"}}],
        "query-migrate": {{"status": "completed"}},
        "query-status": {{"status": "paused"}},
    }}
    while True:
        session, _ = server.accept()
        session.sendall(b'{{"QMP": {{}}}}\\n')
        for line in session.makefile():
            command = json.loads(line)["execute"]
            session.sendall(json.dumps({{"return": answers.get(command, {{}})}}).encode() + b"\\n")
            if command == "quit":
                os._exit(0)

threading.Thread(target=shell, args=[listen("root")], daemon=True).start()
control(listen("qmp"))
"""


def fake_virtual_boards(folder: Path, monkeypatch: pytest.MonkeyPatch, *boards: str) -> Path:
    """Gives this process a QEMU that boots nothing, and a new home with images of these boards;
    returns that home."""
    programs, home = folder / "programs", folder / "home"
    programs.mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("EDGEKIT_HOME", str(home))
    for board in boards:
        architecture = virtual_board(board).architecture
        program = programs / architecture.qemu
        program.write_text(_PROGRAM)
        program.chmod(0o755)
        image = Image(architecture, boards_cache() / f"{architecture.label}-{recipe_hash()}")
        image.states.mkdir(parents=True)
        (image.folder / "host_key.pub").write_text("ssh-ed25519 AAAA board")
    return home
