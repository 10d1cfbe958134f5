"""`edgekit choose`, with a fake emulator that reports given cycle counts."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.errors import PartialError
from edgekit.host.simulator.emulator import Emulator, plugin_of
from edgekit.host.simulator.model import runner_of
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board
from tests.support.fake_emulator import answer, write_emulator
from tests.support.onnx_models import model, node, save, value


@pytest.fixture
def product(home) -> Path:
    weights = {"w": np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)}
    made = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [1, 16])], ["y"], weights)
    return save(made, home)


def _answers(pattern: str, cycles: int) -> str:
    """A case of the emulator for arguments that match."""
    return (
        f"{pattern}) cat > \"$out\" <<'EOF'\n{json.dumps(answer(cycles=cycles))}\nEOF\nexit 0;;\n"
    )


@pytest.mark.slow
def test_boards_are_ranked_with_the_fewest_threads_that_reach_it(
    edgekit, product, tmp_path, monkeypatch
):
    """rpi4, at 1800 MHz, takes 10 ms on one thread, so that two cannot reach 4.1 ms, and 4 on
    three. rpi5, at 2400 MHz, takes 3; rpi3's run crashes; rv64gcv-zvl512b is of
    no certain core."""
    plugin_of(Emulator("qemu-aarch64", (7, 2)))
    runner_of("aarch64")
    cases = (
        _answers("*cortex-a76*", 7_200_000)
        + "*cortex-a53*) kill -SEGV $$;;\n"
        + _answers('*" 3 "*" in out "*', 7_200_000)
    )
    write_emulator(tmp_path, answer(cycles=18_000_000), f'case "$*" in\n{cases}esac')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    boards = ("--boards", "rpi3,rpi4,rv64gcv-zvl512b,rpi5")
    done = edgekit("choose", product, "--within", "4.1", *boards, "-o", "found.csv")
    assert done.code == PartialError.exit_code and "1 of 3 failed; the first, rpi3:" in done.err
    with Path("found.csv").open() as file:
        first, second, *others = csv.DictReader(file)
    assert (first["board"], first["threads"], first["load"][:5]) == ("rpi5", "1", "0.182")
    assert (second["board"], second["threads"], second["load"][:5]) == ("rpi4", "3", "0.731")
    assert second["estimated_ms"] == "4.0" and second["memory_bytes"] == str(1 << 30)
    proof = target_of(load_board("rpi4")).proof("float", 4)
    assert float(second["error_percent"]) == proof.median_percent
    why = {each["board"]: each["why_not"] for each in others}
    assert "killed by SIGSEGV" in why["rpi3"]
    assert why["rv64gcv-zvl512b"].startswith("no timing model of its core")
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["rpi5", "rpi4"] and "3 of 4" in lines[3]
    assert max(map(len, lines[:4])) <= 80
    assert f"no rv64gcv-zvl512b: {why['rv64gcv-zvl512b']}" in lines


@pytest.mark.slow
def test_a_broken_model_is_one_line(edgekit, home):
    Path("broken.onnx").write_bytes(b"no model")
    done = edgekit("choose", "broken.onnx", "--fps", "1", "--boards", "rpi4,rv64gcv-zvl512b")
    assert done.code == 2 and done.out == "" and "broken.onnx" in done.complaint


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fps", "0"), "--fps: expected a number of inferences per second above 0, found 0"),
        (("--fps", "-3"), "found -3"),
        (("--fps", "nan"), "found nan"),
        (("--fps", "inf"), "found inf"),
        (("--within", "0"), "--within: expected a number of milliseconds above 0, found 0"),
        ((), "expected --fps RATE or --within MS, found neither"),
        (("--fps", "1", "--within", "1"), "found both"),
        (("--fps", "1", "--boards", "rpi44"), "expected a board profile, found 'rpi44'"),
        (("--fps", "1", "--boards", "rpi4,rpi4"), "expected each board once"),
        (("--fps", "1", "-o", "x.txt"), "--output: expected a file .csv or .json, found x.txt"),
    ],
)
def test_bad_input_is_one_line(edgekit, product, words, said):
    done = edgekit("choose", product, *words)
    assert done.code == 2 and said in done.complaint


def test_a_missing_model_and_a_bundle_are_refused(edgekit, home):
    assert "no such file" in edgekit("choose", "no.onnx", "--fps", "1").complaint
    Path("a.ekb").write_bytes(b"PK\x03\x04")
    assert "found a bundle" in edgekit("choose", "a.ekb", "--fps", "1").complaint
