"""`edgekit app` with programs not written in Python."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.bundle import sign_bundle
from tests.support.applications import state_of
from tests.support.patience import until
from tests.support.toolchains import program_compiler

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("bare_init")]
WATCHES = """
#include <stdio.h>
#include <unistd.h>
#include "ek_app.h"

int main(void) {
    char error[512], release[EK_APP_RELEASE_BYTES];
    ek_app *app = ek_app_open(NULL, NULL, 1, error, sizeof error);
    if (!app)
        return fprintf(stderr, "%s\\n", error), 1;
    const float x[4] = {1, 2, 3, -4};
    float y[4];
    for (;; usleep(10000)) {
        if (ek_app_run(app, (const void *const[]){x}, (void *const[]){y}, release) || y[0] != 3)
            return fprintf(stderr, "odd numbers\\n"), 1;
        ek_app_alive("looks for faces");
    }
}
"""


def written(folder: Path, name: str, program: bytes) -> Path:
    """An application of one program, without the executable bit."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(program)
    (folder / "app.toml").write_text(f'entry = "{name}"')
    return folder


def test_a_program_in_c_is_installed_and_watched(
    edgekit: Any, home: Path, deployed: Path, tiny: Any
) -> None:
    folder = home / "watch"
    assert edgekit("app", "library", folder).code == 0
    (home / "watch.c").write_text(WATCHES)
    command = [*program_compiler(), str(home / "watch.c"), f"-I{folder}"]
    command += [f"-L{folder}", "-ledgekit-app", "-Wl,-rpath,$ORIGIN", "-o", str(home / "watch.elf")]
    subprocess.run(command, check=True)
    written(folder, "watch", (home / "watch.elf").read_bytes())
    installed = edgekit("app", "install", folder, "--json").document
    assert (installed["state"], installed["name"]) == ("running", "watch")
    until(lambda: state_of(deployed).said == "looks for faces")

    sign_bundle(tiny('TINY_NAME="newer"')).write(home / "newer.ekb")
    newer = edgekit("deploy", home / "newer.ekb", "--json").document["release"]
    until(lambda: state_of(deployed).release == newer)
    assert edgekit("app", "status", "--json").document["pid"] == installed["pid"]

    sign_bundle(tiny("TINY_STATE")).write(home / "odd.ekb")  # this release makes the program crash
    assert edgekit("deploy", home / "odd.ekb").code in (0, 7)
    store = Store(deployed)
    until(lambda: store.links().current == newer)
    until(lambda: store.read_note(store.failure) is not None)
    found = edgekit("status", "--json").document
    assert "odd numbers" in found["last_failure"]["reason"]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (b"#!/bin/sh\nkill -SEGV $$\n", "was killed by SIGSEGV"),
        pytest.param(
            *(b"#!/nowhere/python\n", "could not be started: [Errno 2] No such file"),
            marks=pytest.mark.exhaustive,
        ),
        (b"\x7fELF of another machine", "could not be started: [Errno 8] Exec format error"),
    ],
    ids=["crash", "no interpreter", "another machine"],
)
def test_program_that_fails_gives_way_to_the_release_before(
    edgekit: Any, home: Path, deployed: None, program: bytes, reason: str
) -> None:
    before = edgekit("status", "--json").document["current"]["id"]
    done = edgekit("app", "install", written(home / "bad", "bad", program))
    assert done.code == 7
    assert reason in done.complaint
    assert edgekit("status", "--json").document["current"]["id"] == before


def test_a_file_that_is_neither_python_nor_a_program_is_named(
    edgekit: Any, home: Path, deployed: None
) -> None:
    done = edgekit("app", "install", written(home / "odd", "notes.txt", b"to do"))
    assert done.code == 2
    assert "notes.txt: expected Python in a file that ends in .py, or a program" in done.complaint
