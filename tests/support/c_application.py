"""A C program that runs a deployed model through libedgekit-app."""

from __future__ import annotations

import subprocess
from pathlib import Path

from edgekit.host.compiler.toolchain.application import write_application
from edgekit.kb.targets.board import load_board
from tests.support.toolchains import program_compiler

SOURCES = Path(__file__).parents[1] / "device"
RIGHT = "3 5 7 9"
"""What it prints for the model of `tiny_bundle`."""


def build_program(folder: Path, source: Path = SOURCES / "application.c") -> Path:
    """`source`, linked with the library as a user would."""
    write_application(folder, load_board("local"))
    command = [*program_compiler(), str(source), "-I", str(folder)]
    command += ["-L", str(folder), "-ledgekit-app", f"-Wl,-rpath,{folder}"]
    subprocess.run([*command, "-o", str(folder / "program")], check=True)
    return folder / "program"
