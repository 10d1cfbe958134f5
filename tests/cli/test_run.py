"""`edgekit run`: files and folders in one session, classes, outputs by suffix."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host import connect
from edgekit.host.compiler.artifact import Artifact
from edgekit.host.deploy.bundle import build_bundle, sign_bundle
from edgekit.kb.targets.board import load_board

X = np.array([1, 2, 3, -4], np.float32)


@pytest.fixture
def counting(home: Path, tiny_artifact: Callable[..., Artifact]) -> Path:
    """A bundle signed by this host: y = 2x + 1 + the number of runs so far."""
    bundle = sign_bundle(build_bundle(tiny_artifact("TINY_STATE"), load_board("local")))
    bundle.write(home / "counting.ekb")
    return home / "counting.ekb"


@pytest.fixture
def three(home: Path) -> Path:
    folder = home / "in"
    folder.mkdir()
    for name in ("1", "2", "10"):
        np.savez(folder / f"{name}.npz", x=X)
    return folder


def runs_of(folder: Path) -> dict[str, float]:
    return {p.stem: float(np.load(p)["y"][0] - (2 * X[0] + 1)) for p in folder.glob("*.npz")}


@pytest.mark.slow
def test_a_folder_runs_in_order_and_the_state_goes_on(
    edgekit: Any, counting: Path, three: Path, home: Path
) -> None:
    done = edgekit("run", counting, "--input", three, "--output", "out")
    assert done.code == 0, done.err
    assert runs_of(home / "out") == {"1": 1, "2": 2, "10": 3}
    assert "median of 3 runs" in done.out
    done = edgekit("run", "--input", three, "--output", "fresh", "--reset-each", "--json")
    assert runs_of(home / "fresh") == {"1": 1, "2": 1, "10": 1}
    assert [Path(i["input"]).stem for i in done.document["inputs"]] == ["1", "2", "10"]
    done = edgekit("run", "--input", three, "--output", "all.csv")
    rows = list(csv.DictReader((home / "all.csv").open()))
    assert [float(r["value"]) for r in rows if r["index"] == "0"] == [4, 5, 6]
    assert rows[0] == {"input": "1.npz", "run": "0", "output": "y", "index": "0", "value": "4.0"}
    done = edgekit("run", "--input", three, "--output", "-")
    assert [r["outputs"]["y"][0] for r in done.document["runs"]] == [4, 5, 6]
    done = edgekit("run", "--input", three, "--output", "all.json")
    assert json.loads((home / "all.json").read_text())["schema"] == "edgekit.outputs/1"
    done = edgekit("run", "--input", three, "--output", "all.npz")
    assert done.code == 2 and "expected a folder for the outputs of 3 files" in done.complaint


def test_sound_streams_through_a_model_that_keeps_a_state(
    edgekit: Any, counting: Path, home: Path
) -> None:
    import wave

    with wave.open("x.wav", "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(np.full(10, 1 << 14, "<i2").tobytes())
    done = edgekit("run", counting, "--input", "x.wav", "--output", "y.npz")
    assert done.code == 0 and "sound is taken as samples of any rate" in done.err
    found = np.load("y.npz")["y"]
    np.testing.assert_allclose(found[:, 0], [3, 4, 5])
    np.testing.assert_allclose(found[2], [5, 5, 4, 4])


@pytest.mark.slow
def test_the_best_classes_with_their_labels(edgekit: Any, counting: Path, home: Path) -> None:
    np.save("x.npy", X.astype(np.float64))
    done = edgekit("run", counting, "--input", "x.npy", "--top", "2")
    assert done.code == 0, done.err
    assert [line.split() for line in done.out.splitlines()[-2:]] == [
        ["8.0000", "class", "2"],
        ["6.0000", "class", "1"],
    ]
    Path("labels.txt").write_text("ant\nbee\ncat\ndog\n")
    options = ("--input", "x.npy", "--top", "1", "--labels", "labels.txt")
    assert edgekit("run", *options).out.splitlines()[-1].split() == ["8.0000", "cat"]
    document = edgekit("run", *options, "--json").document
    assert document["inputs"][0]["top"] == [[{"index": 2, "label": "cat", "score": 8.0}]]
    Path("labels.txt").write_text("ant\nbee\n")
    done = edgekit("run", *options)
    assert (
        done.code == 2 and "--labels: expected 4 labels for output 'y', found 2" in done.complaint
    )


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"y": X, "z": X}, "expected inputs x, found y, z"),
        ({"x": X[:3]}, "expected f32 [4], found f32 [3]"),
        ({"x": X.astype(complex)}, "not numbers"),
    ],
)
def test_inputs_are_checked_before_what_is_in_service_changes(
    edgekit: Any, counting: Path, three: Path, arrays: dict[str, Any], expected: str
) -> None:
    np.savez(three / "3.npz", **arrays)
    done = edgekit("run", counting, "--input", three, "--output", "out")
    assert done.code == 2
    assert "3.npz: " in done.complaint and expected in done.complaint
    assert connect("local").status().current is None
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--output", "-", "--json"), "expected one document on stdout"),
        (("--output", "y.txt"), "expected a file .npz, .json or .csv, or a folder"),
        (("--output", "no/y.npz"), "expected its folder to exist"),
        (("--top", "1", "--mean", "1,x"), "--mean: expected a number, or one for each channel"),
        (("--top", "1", "--labels", "none.txt"), "none.txt: expected a file with a label on each"),
    ],
)
def test_options_that_cannot_be_met(
    edgekit: Any, home: Path, options: tuple[str, ...], expected: str
) -> None:
    np.save("x.npy", X)
    done = edgekit("run", "--input", "x.npy", *options)
    assert (done.code, done.out) == (2, "")
    assert expected in done.complaint
