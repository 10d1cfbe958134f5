"""`--shadow`, `--field-ranges` and `quantize --from-field`, as users type them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.agent.sampler import SamplingPace
from edgekit.device.runtime.agent.specs import PlacementRequest
from edgekit.device.runtime.agent.store import Store, committed
from edgekit.device.runtime.application.follow import load
from edgekit.host.common.paths import data_folder
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array
from edgekit.host.deploy.api import connect
from tests.support.c_application import build_program, dense_model
from tests.support.onnx_models import model, node, recurrent, save, value
from tests.support.quantize_models import classifier, samples, save_samples

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

PACE = SamplingPace(1, 1e9, 3600.0)  # each inference, whatever it costs
LOUD = 3.0  # the inputs of boards, as a multiple of the samples


def perceptron(folder: Path) -> Path:
    """x [1,16] -> dense, ReLU, dense -> y [1,4]."""
    rng = np.random.default_rng(5)
    constants = {
        "w0": rng.standard_normal((16, 24)).astype(np.float32),
        "w1": rng.standard_normal((24, 4)).astype(np.float32),
    }
    nodes = [
        node("MatMul", ["x", "w0"], ["h"]),
        node("Relu", ["h"], ["r"]),
        node("MatMul", ["r", "w1"], ["y"]),
    ]
    return save(model(nodes, [value("x", [1, 16])], ["y"], constants), folder, "net.onnx")


def inputs(count: int, seed: int) -> Array:
    """Arrays [count, 16] of far less than 1, which a release's golden inputs reach."""
    return np.random.default_rng(seed).normal(0, 0.1, (count, 16)).astype(np.float32)


def infer(given: Sequence[Array]) -> None:
    """Runs the release on the board `local` in an application, which repeats each inference."""
    store = Store(data_folder() / "boards" / "local")
    release = committed(store)
    assert release is not None
    loaded = load(store, release, PlacementRequest(), 1, PACE)
    for x in given:
        loaded.run({"x": x[None]}, {}, "")
        loaded.write_samples()  # waits for the repeated one
    loaded.close()


def noise(file: str, exact: Path, given: Array) -> float:
    """RMS of the difference of outputs, relative to that of the float model's."""
    graphs = import_model(Path(file)), import_model(exact)
    found, wanted = (
        np.concatenate([evaluate(g, {"x": x[None]}).outputs["y"] for x in given]) for g in graphs
    )
    return float(np.sqrt(np.square(found - wanted).sum() / np.square(wanted).sum()))


@pytest.mark.slow
def test_ranges_of_the_field_come_home_and_refit_the_scales(edgekit: Any, home: Path) -> None:
    path, data = perceptron(home), save_samples(home, x=inputs(32, 0))
    done = edgekit("deploy", path, "--samples", data, "--field-ranges", "--shadow", "1/1")
    assert done.code == 0, done.err
    loud = LOUD * inputs(100, 1)
    infer(loud)
    assert edgekit("profile", "pull", "--board", "local").code == 0
    report = edgekit("profile", "report", "--json").document
    (agreement,) = report["agreement"]
    assert (agreement["inferences"], agreement["boards"]) == (99, 1)  # caches of one are cold
    strays = {each["name"]: each for each in report["strays"]}
    assert strays["x"]["low"] == pytest.approx(float(loud[1:].min()))
    assert strays["x"]["high"] == pytest.approx(float(loud[1:].max()))
    assert 0.1 < strays["x"]["beyond"] < 0.9
    assert "compared by" in edgekit("profile", "report").out
    of_samples = edgekit("quantize", path, "--samples", data, "-o", "a.int8.onnx")
    assert of_samples.code == 0, of_samples.err
    made = edgekit("quantize", path, "--samples", data, "-o", "b.int8.onnx", "--from-field")
    assert made.code == 0, made.err
    assert "from 99 inferences on 1 board\n" in made.out
    assert "in the field" in made.out
    assert "warning: input x: boards saw more than twice the values of the samples" in made.err
    others = LOUD * inputs(30, 2)
    assert noise("b.int8.onnx", path, others) < 0.2 * noise("a.int8.onnx", path, others)


@pytest.mark.slow
def test_a_repeated_inference_begins_with_the_states_of_the_release(
    edgekit: Any, home: Path
) -> None:
    path, states = recurrent(home), ("--state", "before=after")
    done = edgekit("deploy", path, "--weights", "int8", "--shadow", "1/1", *states)
    assert done.code == 0, done.err
    infer(inputs(30, 1))  # soon their states are far from the initial ones
    assert edgekit("profile", "pull", "--board", "local").code == 0
    (agreement,) = edgekit("profile", "report", "--json").document["agreement"]
    assert (agreement["inferences"], agreement["agreed"]) == (29, 29)


@pytest.mark.slow
def test_an_inference_of_a_c_program_is_repeated(edgekit: Any, home: Path) -> None:
    path, data = dense_model(home)
    done = edgekit("deploy", path, "--samples", data, "--field-ranges", "--shadow", "1/1")
    assert done.code == 0, done.err
    program = build_program(home / "c")
    command = [program, data_folder() / "boards" / "local", "run", "run", "run"]
    usual = {**os.environ, "THREADS": "1"}
    ran = subprocess.run(command, env=usual, stdout=subprocess.PIPE, check=True)
    assert len(ran.stdout.splitlines()) == 3
    lone = {"PATH": "", "THREADS": "1"}  # nothing can repeat, which stops no program
    assert subprocess.run(command, env=lone, stdout=subprocess.PIPE, check=True).stdout
    agreement: Any = ()
    while not agreement:  # it is written after the program has ended
        assert edgekit("profile", "pull", "--board", "local").code == 0
        found = edgekit("profile", "report", "--json")
        agreement = found.document["agreement"] if found.code == 0 else ()
    assert (agreement[0]["inferences"], agreement[0]["agreed"]) == (1, 1)


@pytest.mark.exhaustive
def test_a_file_quantized_before_names_its_float_model(edgekit: Any, home: Path) -> None:
    path, data = perceptron(home), save_samples(home, x=inputs(32, 0))
    assert edgekit("quantize", path, "--samples", data, "-o", "net.int8.onnx").code == 0
    options = ("--shadow", "1/1", "--field-ranges", "--float-model", path)
    done = edgekit("deploy", "net.int8.onnx", *options)
    assert done.code == 0, done.err
    infer(inputs(30, 1))
    assert edgekit("profile", "pull", "--board", "local").code == 0
    (agreement,) = edgekit("profile", "report", "--json").document["agreement"]
    assert agreement["inferences"] == 29
    assert agreement["agreed"] >= 27
    made = edgekit("quantize", path, "--samples", data, "--from-field", "--json").document
    assert made["field"] == {"tensors": 3, "boards": 1, "inferences": 29}


def test_ranges_of_another_model_are_one_line(edgekit: Any, home: Path) -> None:
    path, data = perceptron(home), save_samples(home, x=inputs(32, 0))
    done = edgekit("quantize", path, "--samples", data, "--from-field")
    assert (done.code, "expected ranges of net.onnx from boards" in done.complaint) == (2, True)
    done = edgekit("quantize", path, "--samples", data, "--store", home)
    assert "--store: expected --from-field with it" in done.complaint


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--shadow", "1/100"), "--shadow: expected --samples, --weights or --precision with it"),
        (("--field-ranges",), "--field-ranges: expected --samples"),
        (("--shadow", "100", "--weights", "int8"), "--shadow: expected 1/N with N from 1 to"),
        (("--shadow", "1/0", "--weights", "int8"), "--shadow: expected 1/N"),
        (("--float-model", "net.onnx"), "--float-model: expected --shadow or --field-ranges"),
        (("--shadow", "1/9", "--float-model", "other.onnx"), "expected the inputs and outputs"),
        (
            ("--shadow", "1/9", "--weights", "int8", "--input-shape", "x=1,16", "--input-shape",
             "x=2,16"),
            "expected one signature and one shape of each input",
        ),
    ],
)  # fmt: skip
def test_bad_options_are_one_line(
    edgekit: Any, home: Path, options: tuple[str, ...], expected: str
) -> None:
    perceptron(home)
    classifier(home, "other.onnx")
    done = edgekit("compile", "net.onnx", *options)
    assert (done.code, expected in done.complaint) == (2, True), done.err


@pytest.mark.exhaustive
def test_classes_are_compared_where_a_model_has_some(edgekit: Any, home: Path) -> None:
    path, data = classifier(home), save_samples(home)
    done = edgekit("deploy", path, "--samples", data, "--shadow", "1/1")
    assert done.code == 0, done.err
    infer(samples(25, 4))
    assert edgekit("profile", "pull", "--board", "local").code == 0
    (agreement,) = edgekit("profile", "report", "--json").document["agreement"]
    assert agreement["measure"] == "class"
    assert agreement["agreed"] >= 22
    with connect("local").open() as session:
        for x in samples(3, 5):
            session.run({"x": x[None]})
    assert edgekit("profile", "pull", "--board", "local").code == 0
    (agreement,) = edgekit("profile", "report", "--json").document["agreement"]
    assert agreement["inferences"] == 25  # the budget of three inferences allows one
