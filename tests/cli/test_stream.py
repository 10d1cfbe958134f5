"""`edgekit run --stream`: frames from a pipe, a program or a folder, with one result per frame."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.artifact import Artifact
from edgekit.host.deploy.bundle import build_bundle, sign_bundle
from edgekit.kb.targets.board import load_board

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FRAMES = np.arange(12, dtype=np.float32).reshape(3, 4)
COUNTED = 2 * FRAMES + 1 + np.array([[1], [2], [3]], np.float32)  # the model adds its run count


@pytest.fixture(autouse=True)
def counting(
    edgekit: Any, home: Path, tiny_artifact: Callable[..., Artifact], deploy_once: Any
) -> Path:
    """Deploys y = 2x + 1 + the number of runs so far; returns the file of frames."""

    def deploy() -> None:
        bundle = sign_bundle(build_bundle(tiny_artifact("TINY_STATE"), load_board("local")))
        bundle.write(home / "counting.ekb")
        assert edgekit("deploy", home / "counting.ekb").code == 0

    deploy_once(deploy)
    (home / "frames.bin").write_bytes(FRAMES.tobytes())
    return home / "frames.bin"


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Starts the command in a separate process, as a shell does."""
    program = "from edgekit.host.cli.main import run; run()"
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def test_frames_of_standard_input_become_lines(edgekit_process: Any, counting: Path) -> None:
    with counting.open("rb") as frames:
        done = edgekit_process("run", "--stream", stdin=frames)
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["outputs"]["y"] for row in rows] == COUNTED.tolist()
    assert [row["frame"] for row in rows] == [0, 1, 2]
    assert all(row["latency_ms"] >= 0 for row in rows)
    assert done.err.endswith("on local: 3 frames\n")


def test_frames_of_a_program_become_bytes(edgekit: Any, counting: Path, home: Path) -> None:
    with start("run", "--stream", "--command", f"cat {counting}", "--raw") as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (0, COUNTED.tobytes()), err


def test_files_of_a_folder_are_frames(edgekit: Any, home: Path) -> None:
    (home / "in").mkdir()
    for number, frame in enumerate(FRAMES):
        np.save(home / "in" / f"{number}.npy", frame)
    done = edgekit("run", "--stream", "--input", "in", "--top", "1", "--reset-each")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [Path(row["input"]).name for row in rows] == ["0.npy", "1.npy", "2.npy"]
    best = [(row["top"][0]["index"], row["top"][0]["score"]) for row in rows]
    assert best == [(3, 8), (3, 16), (3, 24)]


def test_a_reader_that_leaves_ends_an_endless_stream_in_silence(home: Path) -> None:
    with start("run", "--stream", "--command", "cat /dev/zero") as process:
        assert process.stdout and process.stderr
        assert json.loads(process.stdout.readline())["outputs"]["y"] == [2, 2, 2, 2]
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_an_interrupt_ends_a_stream_in_silence(home: Path) -> None:
    with start("run", "--stream") as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(FRAMES[0].tobytes())
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--stream", "--command", "true"], "expected frames, found none"),
        (["--stream", "--command", "false"], "false: expected frames, found that it exited with 1"),
        (["--stream", "--command", "no-such"], "expected a program that writes frames"),
        (["--stream", "--command", "'"], "expected a program that writes frames"),
        (["--stream", "--command", "true", "--input", "x"], "found both"),
        (["--stream", "--json"], "redirect stdout to a file"),
        (["--stream", "--pixels"], "--pixels: expected an input of one picture"),
        (["--raw"], "expected --stream with"),
        ([], "expected --input FILE or FOLDER, or --stream, found neither"),
    ],
    ids=["none", "fails", "missing", "odd", "two", "json", "pixels", "alone", "nothing"],
)
def test_an_invalid_stream_is_named(edgekit: Any, arguments: list[str], complaint: str) -> None:
    done = edgekit("run", *arguments)
    assert done.code == 2
    assert complaint in done.complaint


def test_part_of_a_frame_is_named(edgekit_process: Any, counting: Path, home: Path) -> None:
    (home / "part.bin").write_bytes(counting.read_bytes() + b"12345")
    with (home / "part.bin").open("rb") as frames:
        done = edgekit_process("run", "--stream", stdin=frames)
    assert done.code == 2
    assert "frame 3: expected 16 bytes, found 5 at the end" in done.complaint
