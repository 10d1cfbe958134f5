"""A C program that runs a deployed model through libedgekit-app."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from edgekit.host.compiler.toolchain.application import write_application
from edgekit.kb.targets.board import load_board
from tests.support.onnx_models import model, node, save, value
from tests.support.quantize_models import save_samples
from tests.support.toolchains import program_compiler

SOURCES = Path(__file__).parents[1] / "device"
RIGHT = "3 5 7 9"
"""What it prints for the model of `tiny_bundle`."""


def build_program(
    folder: Path, source: Path = SOURCES / "application.c", board: str = "local"
) -> Path:
    """`source`, linked with the library next to it as a user would, for a board profile."""
    profile = load_board(board)
    write_application(folder, profile)
    command = [*program_compiler(profile.target), str(source), "-I", str(folder)]
    command += ["-L", str(folder), "-ledgekit-app", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*command, "-o", str(folder / "program")], check=True)
    return folder / "program"


def dense_model(folder: Path) -> tuple[Path, Path]:
    """A model that `application.c` can run, x [1,4] -> dense -> y [1,4], and samples of x."""
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((4, 4)).astype(np.float32)}
    net = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [1, 4])], ["y"], weights)
    return save(net, folder, "net.onnx"), save_samples(folder, x=5 * rng.random((32, 4)))
