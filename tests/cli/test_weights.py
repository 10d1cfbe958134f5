"""--weights and --activations on a small transformer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.driver import compile_artifact, prepare
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.kb.targets.board import load_board
from tests.support.onnx_models import model, node, save, value

pytestmark = pytest.mark.slow

_ROWS, _WIDTH = 12, 64


@pytest.fixture
def transformer(home: Path) -> Path:
    """One transformer block: unmasked attention and a feed-forward of four times the width."""
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> np.ndarray[Any, Any]:
        return (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)

    constants = {f"w{name}": matrix(_WIDTH, _WIDTH) for name in "qkvo"}
    constants |= {"w1": matrix(_WIDTH, 4 * _WIDTH), "w2": matrix(4 * _WIDTH, _WIDTH)}
    constants |= {"b1": rng.standard_normal(4 * _WIDTH).astype(np.float32)}
    constants |= {"g": np.ones(_WIDTH, np.float32), "z": np.zeros(_WIDTH, np.float32)}
    nodes = [node("MatMul", ["x", f"w{name}"], [name]) for name in "qkv"]
    nodes += [
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["mixed"]),
        node("MatMul", ["mixed", "wo"], ["o"]),
        node("Add", ["x", "o"], ["r"]),
        node("LayerNormalization", ["r", "g", "z"], ["n"], axis=-1),
        node("MatMul", ["n", "w1"], ["h"]),
        node("Add", ["h", "b1"], ["hb"]),
        node("Relu", ["hb"], ["act"]),
        node("MatMul", ["act", "w2"], ["f"]),
        node("Add", ["n", "f"], ["y"]),
    ]
    made = model(nodes, [value("x", [1, _ROWS, _WIDTH])], ["y"], constants, opset=17)
    return save(made, home)


def _run(edgekit: Any, file: Path, *options: str) -> np.ndarray[Any, Any]:
    done = edgekit("run", file, *options, "--input", "x.npz", "--output", "y.npz")
    assert done.code == 0, done.err
    with np.load("y.npz") as made:
        return np.array(made["y"])


@pytest.mark.exhaustive
@pytest.mark.parametrize(("bits", "error"), [("int8", 0.03), ("int4", 0.25)])
def test_a_transformer_runs_with_fewer_bits(
    edgekit: Any, home: Path, transformer: Path, bits: str, error: float
) -> None:
    """Bounds the median error: for some inputs, attention scores are nearly tied and may flip."""
    off = []
    for seed in range(1, 6):
        x = np.random.default_rng(seed).standard_normal((1, _ROWS, _WIDTH)).astype(np.float32)
        x[..., 5] *= 30  # an outlier channel
        np.savez(home / "x.npz", x=x)
        options = (
            "--weights",
            bits,
        )
        exact, made = _run(edgekit, transformer), _run(edgekit, transformer, *options)
        off.append(_difference(made, exact))
    assert np.median(off) < error and max(off) < 2 * error
    done = edgekit("compile", transformer, *options, "--explain", "e.json")
    assert done.code == 0
    explained = json.loads((home / "e.json").read_text())
    kinds = [o["op"] for o in explained["operators"]]
    assert kinds.count("outlier_fully_connected") == 6
    assert "compress_weights" in [p["name"] for p in explained["passes"]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("bits", ["int8", "int4"])
def test_a_detector_computes_what_numpy_says(
    edgekit: Any, home: Path, face_model: Path, bits: Any
) -> None:
    """Some inputs match exactly. In others, an activation halfway between two quantized values
    rounds the other way, which shifts the rest; this depends on the machine's summation order.
    """
    board, options = load_board("local"), CompileOptions(weights=bits)
    graph = prepare(face_model, board, options).imported
    (name,) = graph.inputs
    asked = ("--weights", bits, "-o", "m.ekb")
    assert edgekit("compile", face_model, *asked).code == 0
    off = []
    for seed in range(2, 8):
        x = np.random.default_rng(seed).uniform(-1, 1, graph.tensors[name].shape)
        np.savez(home / "x.npz", **{name: x.astype(np.float32)})
        run = edgekit("run", "m.ekb", "--input", "x.npz", "--output", "y.npz")
        assert run.code == 0, run.err
        expected = evaluate(graph, {name: x.astype(np.float32)}).outputs
        with np.load("y.npz") as made:
            off.append(max(_difference(made[n], y) for n, y in expected.items()))
    assert min(off) < 1e-5 and max(off) < 0.03, off


def _difference(made: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(made - right) / np.linalg.norm(right))


def test_fewer_bits_make_smaller_weights(edgekit: Any, home: Path, face_model: Path) -> None:
    sizes = []
    for bits in (None, "int8", "int4"):
        asked = ("--weights", bits) if bits else ()
        assert edgekit("compile", face_model, *asked, "--explain", "e.json").code == 0
        explained = json.loads((home / "e.json").read_text())
        kinds = [o["op"] for o in explained["operators"]]
        assert ("outlier_fully_connected" in kinds) == bool(bits)
        sizes.append(explained["memory"]["weights_bytes"])
    assert sizes[0] > 1.5 * sizes[1] > 1.5 * sizes[2]


def test_the_loss_relative_to_floats_is_reported(edgekit: Any, transformer: Path) -> None:
    """Measured on the golden outputs, which a second compile with equal options reproduces."""
    board, shown = load_board("local"), []
    for bits in ("int8", "int4"):
        done = edgekit("compile", transformer, "--weights", bits)
        found = re.search(r"6 of \d+ operators; golden outputs have a cosine of ([\d.]+)", done.err)
        assert found, done.err
        shown.append(float(found[1]))
        options: Any = CompileOptions(weights=bits)
        golden = compile_artifact(transformer, board, options=options).golden
        floats = prepare(transformer, board).imported
        exact = evaluate(floats, dict(zip(floats.inputs, golden.inputs, strict=True))).outputs["y"]
        made = golden.outputs[0]
        cosine = np.vdot(exact, made) / np.linalg.norm(exact) / np.linalg.norm(made)
        assert shown[-1] == pytest.approx(float(cosine), abs=2e-5)
    assert 0.9 < shown[1] < shown[0] < 1
    assert "cosine" not in edgekit("compile", transformer).err


def test_the_loss_goes_with_the_release(edgekit: Any, home: Path, transformer: Path) -> None:
    """Compile, health check and status report the loss; an exact model has none."""
    options = ("--weights", "int4")
    done = edgekit("compile", transformer, *options, "-o", "few.ekb", "--json")
    loss = json.loads(done.out)["loss"]
    assert 0.9 < loss["cosine"] < 1 and 0 < loss["off"] < 1
    shown = f"golden outputs have a cosine of {loss['cosine']:.5f} with the float model's"
    assert shown in done.err
    deployed = edgekit("deploy", "few.ekb", "--board", "local")
    assert deployed.code == 0, deployed.err
    assert shown in next(line for line in deployed.out.splitlines() if line.startswith("health"))
    assert f"loss      {shown}" in edgekit("status", "--board", "local").out
    found = json.loads(edgekit("status", "--board", "local", "--json").out)
    assert found["current"]["loss"] == loss
    assert edgekit("deploy", transformer, "--board", "local").code == 0
    found = json.loads(edgekit("status", "--board", "local", "--json").out)
    assert found["current"]["loss"] is None and found["previous"]["loss"] == loss


@pytest.mark.exhaustive
def test_weights_are_fitted_to_samples(edgekit: Any, home: Path, transformer: Path) -> None:
    rng = np.random.default_rng(1)
    basis = rng.standard_normal((6, _WIDTH))
    rows = rng.standard_normal((17, 1, _ROWS, 6)) @ basis  # low-rank, like activations
    x = rows.astype(np.float32)
    np.savez(home / "samples.npz", x=x[:16])
    floats = prepare(transformer, load_board("local")).imported
    right = evaluate(floats, {"x": x[16]}).outputs["y"]
    options = ("--weights", "int4", "--group-size", "32", "-o", "m.ekb")
    assert edgekit("compile", transformer, *options).code == 0
    plain = _difference(_ran(edgekit, x[16]), right)
    done = edgekit("compile", transformer, *options, "--samples", "samples.npz")
    assert 1.5 * _difference(_ran(edgekit, x[16]), right) < plain
    shown = re.search(r"4 held-out samples, outputs have a cosine of at least ([\d.]+)", done.err)
    cosines = []
    for held_out in x[:16:4]:
        exact, made = evaluate(floats, {"x": held_out}).outputs["y"], _ran(edgekit, held_out)
        cosines.append(np.vdot(exact, made) / np.linalg.norm(exact) / np.linalg.norm(made))
    assert shown and float(shown[1]) == pytest.approx(float(min(cosines)), abs=3e-4)


def test_outlier_splits_are_reported_with_error_and_cost(
    edgekit: Any, home: Path, transformer: Path
) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((9, 1, _ROWS, _WIDTH)).astype(np.float32)
    x[..., [3, 9]] *= 30
    np.savez(home / "samples.npz", x=x)
    options = ("--weights", "int8", "--explain", "e.json")
    assert edgekit("compile", transformer, *options).code == 0
    before = _explained(home)
    assert {str(each["outliers"]) for each in before} == {
        "{'threshold': 6.0, 'chosen': None, 'tried': []}"
    }
    done = edgekit("compile", transformer, *options, "--samples", "samples.npz", "--board", "rpi5")
    shown = re.search(r"outliers: (\d+) of 6 products compute (\d+) channels separately", done.err)
    found = [each["outliers"] for each in _explained(home)]
    counts = [each["chosen"]["channels"] for each in found]
    assert shown and [int(n) for n in shown.groups()] == [sum(map(bool, counts)), sum(counts)]
    assert max(counts) >= 2
    for each, operator in zip(found, _explained(home), strict=True):
        assert each["chosen"] in each["tried"] and len(each["tried"]) > 3
        assert operator["cost_us"] == pytest.approx(each["chosen"]["cost_us"], rel=0.05)
        assert each["tried"][-1]["error"] < each["tried"][0]["error"] < 0.1


def _explained(home: Path) -> list[dict[str, Any]]:
    explained = json.loads((home / "e.json").read_text())
    return [o for o in explained["operators"] if o["op"] == "outlier_fully_connected"]


def _ran(edgekit: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    np.savez("x.npz", x=x)
    run = edgekit("run", "m.ekb", "--input", "x.npz", "--output", "y.npz")
    assert run.code == 0, run.err
    with np.load("y.npz") as made:
        return np.array(made["y"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--samples", "nan.npz"), "input 'x': expected finite values, found NaN or infinity in"),
        (("--samples", "wide.npz"), "expected samples of shape [N, 12, 64], found [9, 12, 65]"),
        (("--samples", "none.npz"), "expected samples, an .npz file or a folder, found none"),
        (("--group-size", "48"), "--group-size: expected 32, 64 or 128, found 48"),
        (("--group-size", "128"), "divides the 64 values of k of"),
    ],
)
def test_bad_samples_and_sizes_are_named(
    edgekit: Any, home: Path, transformer: Path, options: tuple[str, ...], said: str
) -> None:
    x = np.random.default_rng(1).standard_normal((9, _ROWS, _WIDTH)).astype(np.float32)
    np.savez(home / "wide.npz", x=np.zeros((9, _ROWS, _WIDTH + 1), np.float32))
    x[3, 2, 1] = np.nan
    np.savez(home / "nan.npz", x=x)
    done = edgekit("compile", transformer, "--weights", "int4", *options)
    assert done.code == 2 and said in done.complaint and "\n" not in done.complaint.strip()


def test_sizes_of_groups_need_weights(edgekit: Any, transformer: Path) -> None:
    done = edgekit("compile", transformer, "--group-size", "32")
    assert done.code == 2 and "--group-size: expected --weights int" in done.complaint


def test_samples_may_be_whole_numbers(edgekit: Any, home: Path) -> None:
    """Token ids, as an embedding reads them: there are no float samples to check for constants."""
    rng = np.random.default_rng(2)
    constants = {"table": rng.standard_normal((50, _WIDTH)).astype(np.float32)}
    constants |= {"w": rng.standard_normal((_WIDTH, _WIDTH)).astype(np.float32)}
    nodes = [node("Gather", ["table", "ids"], ["e"]), node("MatMul", ["e", "w"], ["y"])]
    words = value("ids", [1, _ROWS], "s64")
    file = save(model(nodes, [words], ["y"], constants, opset=17), home)
    np.savez(home / "ids.npz", ids=rng.integers(0, 50, (9, 1, _ROWS)))
    options = ("--weights", "int4", "--samples", "ids.npz")
    done = edgekit("compile", file, *options)
    assert done.code == 0, done.err
    assert "low-bit weights: 2 of 3 operators" in done.err
    alone = [node("Gather", ["table", "ids"], ["e"]), node("Neg", ["e"], ["y"])]
    words = value("ids", [1, _ROWS], "s64")
    table = save(model(alone, [words], ["y"], {"table": constants["table"]}, opset=17), home)
    done = edgekit("compile", table, *options)
    assert done.code == 0 and "outliers:" not in done.err, done.err


@pytest.mark.exhaustive
def test_weights_that_need_8_bits_get_them(edgekit: Any, home: Path, transformer: Path) -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((17, 1, _ROWS, 6)) @ rng.standard_normal((6, _WIDTH))
    np.savez(home / "samples.npz", x=rows[:16].astype(np.float32))
    options = ("--weights", "int4", "--samples", "samples.npz")
    shown, sizes = [], []
    for target in ("0.5", "0.999", "0.999999999"):
        done = edgekit("compile", transformer, *options, "--min-cosine", target, "--json")
        assert done.code == 0, done.err
        shown.append(done.err)
        sizes.append(json.loads(done.out)["weights_bytes"])
    assert "all weights have few bits, which meets the target of 0.5" in shown[0]
    count = re.search(r"weights have 8 bits in ([1-5]) of 6 operators: (.+)", shown[1])
    least = re.search(r"outputs have a cosine of at least ([\d.]+)", shown[1])
    assert count and least and float(least[1]) >= 0.999 and "not met" not in shown[1]
    assert len(count[2].split(", ")) == int(count[1])
    assert "8 bits in 6 of 6 operators" in shown[2] and "is not met" in shown[2]
    assert sizes[0] < sizes[1] < sizes[2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--weights", "int4", "--min-cosine", "0.9"),
            "--weights int4, int3 or int2 and --samples with it, found no --samples",
        ),
        (("--weights", "int8", "--min-cosine", "0.9"), "found --weights int8"),
        (("--weights", "int4", "--samples", "x.npz", "--min-cosine", "1.5"), "0 and 1, found 1.5"),
    ],
)
def test_targets_that_cannot_be_are_named(
    edgekit: Any, transformer: Path, options: tuple[str, ...], said: str
) -> None:
    done = edgekit("compile", transformer, *options)
    assert done.code == 2 and said in done.complaint and "\n" not in done.complaint.strip()


@pytest.mark.parametrize("factor", [1.0, 255.0])
def test_compile_tells_the_threshold(edgekit: Any, home: Path, factor: float) -> None:
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((64, 64)).astype(np.float32)}
    constants |= {"f": np.array([factor], np.float32)}
    nodes = [node("Mul", ["x", "f"], ["wide"]), node("MatMul", ["wide", "w"], ["y"])]
    file = save(model(nodes, [value("x", [8, 64])], ["y"], constants), home)
    options = ("--weights", "int8")
    done = edgekit("compile", file, *options)
    assert done.code == 0, done.err
    shown = re.search(
        r"without --samples, channels beyond 6 are computed separately in 1 product(.*)", done.err
    )
    assert shown, done.err
    doubled = "; golden inputs exceed it in 1 of them in more than 1 of 32 channels"
    assert shown[1].startswith(doubled if factor > 1 else "") and bool(shown[1]) == (factor > 1)
    if factor > 1:
        assert float(shown[1].split()[-1]) in (96, 192, 384)
    np.savez(home / "samples.npz", x=rng.uniform(-1, 1, (9, 8, 64)).astype(np.float32))
    done = edgekit("compile", file, *options, "--samples", "samples.npz")
    assert done.code == 0 and "without --samples" not in done.err
