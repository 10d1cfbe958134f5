"""`edgekit inspect` describes models, including those that cannot be compiled."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.inspect import inspect_model
from edgekit.kb.targets.board import load_board
from tests.support.onnx_models import model, node, save, value


@pytest.fixture
def convolution(home: Path) -> Path:
    """An ONNX model with a 3x3 convolution and three unsupported operators."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Fancy", ["a"], ["b"], domain="com.example"),
        node("Fancy", ["b"], ["c"], domain="com.example"),
        node("StringNormalizer", ["c"], ["y"]),
    ]
    proto = model(
        nodes,
        [value("x", ["batch", 3, 8, 8])],
        ["y"],
        {"w": np.ones((4, 3, 3, 3), np.float32)},
    )
    proto.graph.value_info.extend([value("a", [1, 4, 8, 8]), value("b", [1]), value("c", [1])])
    proto.graph.output[0].CopyFrom(value("y", [1]))
    return save(proto, home)


@pytest.mark.slow
def test_a_model_that_compiles(edgekit: Any, face_model: Path) -> None:
    done = edgekit("inspect", face_model, "--board", "rpi4", "--json")
    assert done.code == 0, done.err
    found = done.document
    assert found["schema"] == "edgekit.inspect/1"
    assert (found["compiles"], found["reason"], found["unsupported"]) == (True, None, [])
    assert found["inputs"] == [
        {"name": "input", "dtype": "f32", "shape": [1, 128, 128, 3], "scale": None,
         "zero_point": None}
    ]  # fmt: skip
    assert [o["name"] for o in found["outputs"]] == ["regressors", "classificators"]
    counts = {o["kind"]: o["count"] for o in found["operators"]}
    assert counts["CONV_2D"] == 21 and counts["DEPTHWISE_CONV_2D"] == 16
    assert found["multiply_adds"] == 30_760_960
    assert found["memory"]["source"] == "plan"
    compiled = edgekit("compile", face_model, "--board", "rpi4", "--json").document
    assert found["memory"]["arena_bytes"] == compiled["arena_bytes"]
    assert found["memory"]["weights_bytes"] == compiled["weights_bytes"]


@pytest.mark.exhaustive
def test_explain_counts_the_same_products(edgekit: Any, face_model: Path, home: Path) -> None:
    found = edgekit("inspect", face_model, "--board", "rpi3", "--json").document
    done = edgekit("compile", face_model, "--board", "rpi3", "--explain", "why.json", "--json")
    assert done.code == 0, done.err
    operators = json.loads((home / "why.json").read_text())["operators"]
    assert sum(o["multiply_adds"] for o in operators) == found["multiply_adds"]
    depthwise = [o["multiply_adds"] for o in operators if o["op"] == "depthwise_conv2d"]
    assert depthwise and all(depthwise)


def test_a_model_with_states(edgekit: Any, face_model: Path) -> None:
    done = edgekit("inspect", face_model.parent / "okay_nabu.tflite")
    assert done.code == 0, done.err
    assert "verdict        compiles\n" in done.out
    assert "state          stream_9/states: s8 [1, 12, 1, 64]\n" in done.out
    assert "s8 [1, 3, 40], scale 0.101961, zero point -128" in done.out


def test_a_model_that_does_not_compile(edgekit: Any, convolution: Path) -> None:
    done = edgekit("inspect", convolution, "--input-shape", "x=1,3,8,8")
    assert done.code == 0, done.err
    assert (
        "verdict        does not compile: m.onnx: operators com.example:Fancy × 2 (1, 2)"
        in done.out
    )
    assert "unsupported    com.example:Fancy × 2 (1, 2): end the model before it" in done.out
    assert "unsupported    StringNormalizer (3): give the model numbers" in done.out
    assert f"multiply-adds  {8 * 8 * 4 * 27:,}\n" in done.out
    assert "parameters     108, 432 B\n" in done.out
    assert "arena 1.75 KiB" in done.out and "(estimated from the file)" in done.out


def test_a_shape_of_the_only_input_needs_no_name(edgekit: Any, home: Path) -> None:
    one = save(model([node("Relu", ["x"], ["y"])], [value("x", ["n", 3])], ["y"]), home)
    assert (
        edgekit("inspect", one, "--input-shape", "5,3", "--json").document["inputs"]
        == (edgekit("inspect", one, "--input-shape", "x=5,3", "--json").document["inputs"])
    )
    done = edgekit("compile", one, "-o", "m.ekb", "--input-shape", "5,3")
    assert done.code == 0, done.err
    both = [value("a", ["n", 3]), value("b", ["n", 3])]
    path = save(model([node("Add", ["a", "b"], ["y"])], both, ["y"]), home)
    done = edgekit("compile", path, "--input-shape", "5,3")
    assert done.code == 2 and "with one of the inputs a, b, found no name" in done.err


def test_another_shape_than_the_file_fixes(edgekit: Any, home: Path) -> None:
    weights = {"w": np.ones((4, 3, 3, 3), np.float32), "s": np.array([1, 144])}
    nodes = [node("Conv", ["x", "w"], ["a"])]
    path = save(model(nodes, [value("x", [10, 3, 8, 8])], ["a"], weights), home)
    done = edgekit("inspect", path, "--input-shape", "1,3,16,16")
    assert "output         a: f32 [1, 4, 14, 14]" in done.out
    assert "note           --input-shape: x [10,3,8,8] became [1,3,16,16]" in done.out
    flat = [*nodes, node("Reshape", ["a", "s"], ["y"])]
    path = save(model(flat, [value("x", [1, 3, 8, 8])], ["y"], weights), home)
    assert edgekit("compile", path, "-o", "m.ekb").code == 0
    done = edgekit("compile", path, "--input-shape", "1,3,16,16")
    assert done.code == 2 and "x [1,3,8,8] became [1,3,16,16], other than the file" in done.err


def test_an_open_shape_is_no_obstacle(edgekit: Any, convolution: Path) -> None:
    found = edgekit("inspect", convolution, "--json").document
    assert found["inputs"][0]["shape"] == ["batch", 3, 8, 8]
    assert found["compiles"] is False and found["memory"]["arena_bytes"] is None
    assert [(u["kind"], u["places"]) for u in found["unsupported"]] == [
        ("com.example:Fancy", ["1", "2"]),
        ("StringNormalizer", ["3"]),
    ]


def test_pruned_layers_and_how_they_run(edgekit: Any, home: Path) -> None:
    w = np.zeros((64, 64, 1, 1), np.float32)
    w[:, ::8] = 0.5
    nodes = [node("Conv", ["x", "w"], ["h"]), node("Conv", ["h", "v"], ["y"], pads=[1, 1, 1, 1])]
    window = np.zeros((8, 64, 5, 7), np.float32)
    window[0, 0] = 1
    inputs = [value("x", [1, 64, 24, 24])]
    path = save(model(nodes, inputs, ["y"], {"w": w, "v": window}), home)
    found = edgekit("inspect", path, "--board", "rpi4", "--json").document["sparse"]
    assert [layer["density"] for layer in found] == [0.125, pytest.approx(1 / 512)]
    assert found[0]["form"] == "pixels" and found[0]["sparse_us"] < found[0]["dense_us"]
    shown = edgekit("inspect", path, "--board", "visionfive2").out.splitlines()
    at = next(i for i, line in enumerate(shown) if line.startswith("pruned layer"))
    assert shown[at + 1].split()[1:3] == ["pixels", "0.12"]
    assert shown[at + 2].split()[1:3] == ["windows", "0.00"]


def test_a_caffe_network(edgekit: Any, home: Path) -> None:
    (home / "net.prototxt").write_text(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }\n'
        'layer { name: "y" type: "ReLU" bottom: "x" top: "y" }\n'
        'layer { name: "z" type: "Own" bottom: "y" top: "z" }\n'
    )
    found = edgekit("inspect", "net.prototxt", "--json").document
    assert found["format"] == "Caffe" and found["inputs"][0]["shape"] == [1, 2]
    assert [o["name"] for o in found["outputs"]] == ["z"]
    assert [(u["kind"], u["places"]) for u in found["unsupported"]] == [("Own", ["z"])]


@pytest.mark.slow
def test_a_model_that_is_too_large_for_the_board(face_model: Path) -> None:
    small = replace(load_board("a57"), memory_bytes=20_000)
    found = inspect_model(face_model.with_name("okay_nabu.tflite"), small)
    assert found.reason is not None and "expected at most 20000 bytes" in found.reason
    assert found.multiply_adds == 36_480


def test_names_of_the_file_reach_no_terminal(edgekit: Any, home: Path) -> None:
    name = "\x1b[31m" + "n" * 10_000
    nodes = [node("Fancy\x1b]0;title\x07", [name], ["y\n\x00"])]
    path = save(model(nodes, [value(name, [2])], ["y\n\x00"]), home)
    done = edgekit("inspect", path)
    assert done.code == 0, done.err
    assert not any(c in done.out for c in "\x1b\x07\x00") and len(done.out) < 3000
    found = edgekit("inspect", path, "--json").document
    assert found["inputs"][0]["name"] == name


def test_an_unreadable_model_is_one_line(edgekit: Any, home: Path) -> None:
    for name, content in (("a.tflite", b"\x1c\0\0\0TFL3"), ("b.onnx", b"\x08\xff"), ("c", b"hi")):
        (home / name).write_bytes(content)
        done = edgekit("inspect", home / name)
        assert (done.code, done.out) == (2, "")
        assert name in done.complaint


@pytest.mark.parametrize("kind", ["onnx", "caffe"])
def test_names_of_hostile_files_never_reach_the_terminal(
    edgekit: Any, tmp_path: Path, kind: str
) -> None:
    """Escape sequences, line breaks and bidirectional control characters in every name."""
    odd = "a\x1b]0;gone\x07\x1b[2J\u202e\nb"
    if kind == "onnx":
        graph = model([node("Relu", [odd], ["y"], name=odd)], [value(odd, [1, 4])], ["y"])
        file = save(graph, tmp_path)
        save(model([node(odd, [odd], ["y"])], [value(odd, [4])], ["y"]), tmp_path, "bad.onnx")
    else:
        text = 'name: "%s" layer { name: "%s" type: "Input" top: "%s" input_param { shape { dim: 1 '
        file = tmp_path / "m.prototxt"
        shown = odd.replace("\n", "\\n")
        file.write_text(text % (shown, shown, shown) + "dim: 3 dim: 4 dim: 4 } } }\n")
        (tmp_path / "bad.onnx").write_bytes(odd.encode())
    for command in (("inspect", file), ("inspect", tmp_path / "bad.onnx"), ("compile", file)):
        done = edgekit(*command)
        for text in (done.out, done.err):
            assert not {"\x1b", "\x07", "\u202e"} & set(text)
        if done.code:
            assert done.complaint
