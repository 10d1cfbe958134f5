"""ONNX models on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.onnx_models import model, node, save, value
from tests.support.places import few_or_all

pytestmark = pytest.mark.slow


@pytest.fixture
def scaled(home: Path) -> Path:
    """y = relu(x + x) with dynamic batch and width."""
    nodes = [node("Add", ["x", "x"], ["s"]), node("Relu", ["s"], ["y"])]
    return save(model(nodes, [value("x", ["n", 2, "w"])], ["y"]), home)


def test_open_shapes_are_given_on_the_command_line(edgekit: Any, home: Path, scaled: Path) -> None:
    x = np.arange(-6, 6, dtype=np.float32).reshape(2, 2, 3)
    np.savez(home / "x.npz", x=x)
    done = edgekit(
        "run", scaled, "--input-shape", "x=2,2,3", "--input", "x.npz", "--output", "y.npz"
    )
    assert done.code == 0, done.complaint
    with np.load(home / "y.npz") as made:
        np.testing.assert_array_equal(made["y"], np.maximum(2 * x, 0))


def test_an_open_shape_is_asked_for(edgekit: Any, home: Path, scaled: Path) -> None:
    done = edgekit("compile", scaled)
    assert (done.code, done.out) == (2, "")
    assert "input x [1,2,w]: expected fixed shapes, found open ones" in done.complaint
    assert done.complaint.endswith(f"edgekit compile {scaled} --input-shape x=1,2,100")
    assert sorted(p.name for p in home.iterdir()) == ["m.onnx"]


def test_an_open_batch_is_one_and_that_is_said(edgekit: Any, home: Path) -> None:
    path = save(model([node("Relu", ["x"], ["y"])], [value("x", ["N", 3])], ["y"]), home)
    done = edgekit("compile", path, "--json")
    assert done.code == 0
    assert done.document["schema"] == "edgekit.compile/1"
    assert "m.onnx: the batch of input x is open and becomes 1" in done.err
    assert "--input-shape sets another one" in done.err
    assert "becomes" not in edgekit("compile", path, "--input-shape", "x=2,3").err


def test_several_shapes_in_one_release(edgekit: Any, home: Path, scaled: Path) -> None:
    shapes = ["--input-shape", "x=1,2,3", "--input-shape", "x=1,2,5"]
    done = edgekit("compile", scaled, *shapes, "-o", "m.ekb", "--explain", "why.json")
    assert done.code == 0, done.err
    assert done.out.endswith("shapes    x=1,2,3\nshapes    x=1,2,5\n")
    assert len(json.loads((home / "why.json").read_text())["variants"]) == 1
    for width in (5, 3):
        x = np.arange(-width, width, dtype=np.float32).reshape(1, 2, width)
        np.savez(home / "x.npz", x=x)
        done = edgekit("run", "m.ekb", "--input", "x.npz", "--output", "y.npz")
        assert done.code == 0, done.err
        with np.load(home / "y.npz") as made:
            np.testing.assert_array_equal(made["y"], np.maximum(2 * x, 0))
    assert "shapes    x=1,2,3\nshapes    x=1,2,5\n" in edgekit("status").out
    document = edgekit("status", "--json").document
    assert document["current"]["shapes"] == [{"x": [1, 2, 3]}, {"x": [1, 2, 5]}]
    timed = edgekit("bench", "model", "m.ekb", "--runs", "2", "--json").document
    assert [timed["shapes"], timed["variants"][0]["shapes"]] == document["current"]["shapes"]
    np.savez(home / "x.npz", x=np.zeros((1, 2, 4), np.float32))
    done = edgekit("run", "--input", "x.npz", "--output", "y.npz")
    assert done.code == 2
    assert "expected inputs of shapes x=1,2,3 or x=1,2,5, found x=1,2,4" in done.complaint


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["x"], "expected NAME=1,3,224,224"),
        (["x=1,0,3"], "expected NAME=1,3,224,224"),
        (["x=1,2,3", "x=1,2,3"], "expected different shapes, found x=1,2,3 again"),
        (["x=1,2,3", "x=1,2,4", *["y=1,2,3"] * 3], "found 2 of x, 3 of y"),
        ([f"x=1,2,{n}" for n in range(1, 40)], "expected at most 32 shapes of an input, found 39"),
        (["z=1,2,3"], "expected an input of the model (x)"),
        (["x=9,3"], "fits [n,2,w]"),
    ],
)
def test_shapes_that_do_not_fit(
    edgekit: Any, scaled: Path, given: list[str], complaint: str
) -> None:
    options = [part for text in given for part in ("--input-shape", text)]
    done = edgekit("compile", scaled, *options)
    assert done.code == 2
    assert complaint in done.complaint


def test_inputs_of_tflite_models_are_resized_by_name(edgekit: Any, face_model: Path) -> None:
    done = edgekit("compile", face_model, "--input-shape", "x=1,2")
    assert done.code == 2
    assert "expected an input of the model (input), found x" in done.complaint
    done = edgekit("compile", face_model, "--input-shape", "input=1,96,128,3", "--json")
    assert done.code == 0, done.err
    assert done.document["shapes"] == [{"input": [1, 96, 128, 3]}]


def test_unsupported_operators_are_listed_and_nothing_is_written(edgekit: Any, home: Path) -> None:
    nodes = [node("ImageDecoder", ["x"], ["a"]), node("StringNormalizer", ["a"], ["y"])]
    done = edgekit("compile", save(model(nodes, [value("x", [2])], ["y"]), home))
    assert done.code == 2
    assert "ImageDecoder (0), StringNormalizer (1)" in done.complaint
    assert sorted(p.name for p in home.iterdir()) == ["m.onnx"]


def test_one_array_does_for_one_input(edgekit: Any, home: Path, scaled: Path) -> None:
    x = np.arange(-6, 6, dtype=np.float32).reshape(2, 2, 3)
    np.save(home / "x.npy", x)
    shape = ("--input-shape", "x=2,2,3")
    done = edgekit("run", scaled, *shape, "--input", "x.npy", "--output", "y.npz")
    assert done.code == 0, done.complaint
    with np.load(home / "y.npz") as made:
        np.testing.assert_array_equal(made["y"], np.maximum(2 * x, 0))
    np.save(home / "x.npy", x[:1])
    done = edgekit("run", "--input", "x.npy", "--output", "y.npz")
    assert done.code == 2 and "x" in done.complaint
    np.save(home / "x.npy", np.array([object()]))
    done = edgekit("run", "--input", "x.npy", "--output", "y.npz")
    assert done.code == 2 and "plain arrays" in done.complaint


def test_one_array_does_not_for_two_inputs(edgekit: Any, home: Path) -> None:
    nodes = [node("Add", ["a", "b"], ["y"])]
    path = save(model(nodes, [value("a", [2]), value("b", [2])], ["y"]), home)
    np.save(home / "x.npy", np.ones(2, np.float32))
    done = edgekit("run", path, "--input", "x.npy", "--output", "y.npz")
    assert done.code == 2
    assert "expected an .npz file with arrays a, b, found .npy" in done.complaint


@pytest.mark.parametrize("odd", few_or_all([np.nan, np.inf, -np.inf, 3e38], [np.inf, 3e38]))
def test_weights_that_are_no_numbers_are_no_obstacle(edgekit: Any, home: Path, odd: float) -> None:
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("LeakyRelu", ["r"], ["l"], alpha=odd),
        node("PRelu", ["l", "b2"], ["p"]),
        node("Add", ["p", "b2"], ["y"]),
    ]
    constants = {
        "w": np.array([odd, 1], np.float32).reshape(2, 1, 1, 1),
        "b": np.array([1, odd], np.float32),
        "b2": np.array([2, odd], np.float32).reshape(2, 1, 1),
    }
    path = save(model(nodes, [value("x", [1, 1, 3, 3])], ["y"], constants), home)
    done = edgekit("deploy", path)
    assert done.code == 0, done.err
    assert "Warning" not in done.err
