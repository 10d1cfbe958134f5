"""Complete models on boards with an NNA: bit-exact with the cores, and the cost of a run."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.arrays.nna import (
    emulate_conv3x3,
    emulate_depthwise3x3,
    emulate_matmul,
    emulate_pointwise,
)
from edgekit.device.runtime.arrays.nna_account import NnaAccount
from edgekit.host.compiler.artifact import Artifact
from edgekit.host.compiler.costs.model import NNA
from edgekit.host.compiler.driver import compile_artifact
from edgekit.host.compiler.exporters.tflite.writer import write_tflite
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.toolchain.nna_account import account_of_node
from edgekit.host.deploy.explanations import nna_lines
from edgekit.host.report import compile_report, page, trace
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import run_here
from tests.support.nna_model import attention_graph, tiny_graph, tiny_model
from tests.support.op_graphs import inputs_of
from tests.support.places import few_or_all
from tests.support.reports import data_of

_EXTRA = os.environ.get("EDGEKIT_EXTRA_DATA")
# Minimum number of layers on the NNA: this machine's vectors may be longer than the board's.
_TINY = {"pretrainedResnet_quant": 9, "vww_96_int8": 25, "kws_ref_model": 8, "ad01_int8": 8}
_NOW = datetime(2026, 11, 22, 8, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny.tflite")


@pytest.fixture(scope="module")
def explained(model: Path) -> Any:
    return compile_artifact(model, load_board("nna2")).explain


def here(model: Path, chip: str | None) -> Artifact:
    """Compiles for this machine with the NNA of board `chip`. Core speeds are also that board's,
    because this machine's cores are too fast for the NNA to pay off."""
    board = load_board("local")
    if chip is not None:
        other = load_board(chip)
        board = dataclasses.replace(board, nna=other.nna, compute=other.speeds)
    return compile_artifact(model, board)


def run(made: Artifact, folder: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    folder.mkdir()
    (folder / "model.so").write_bytes(made.library)
    (folder / "weights.bin").write_bytes(made.weights)
    return run_here(folder, inputs)


def on_nna(made: Artifact) -> list[str]:
    return [o["name"] for o in made.explain["operators"] if o["unit"] == NNA]


@pytest.mark.slow
@pytest.mark.parametrize("chip", ["nna1", "nna2"])
def test_a_model_is_bit_for_bit_the_reference_and_the_cores(model, chip, tmp_path):
    graph = import_model(model)
    inputs = inputs_of(graph)
    made = here(model, chip)
    assert len(on_nna(made)) >= 6
    found, cores = (
        run(made, tmp_path / "nna", inputs),
        run(here(model, None), tmp_path / "c", inputs),
    )
    for name, expected in evaluate(graph, inputs).outputs.items():
        np.testing.assert_array_equal(found[name], expected)
        np.testing.assert_array_equal(cores[name], expected)


@pytest.mark.parametrize("chip", ["nna1", "nna2"])
def test_the_products_of_attention_are_bit_for_bit_the_reference(chip, tmp_path):
    graph = attention_graph()
    path = tmp_path / "attention.tflite"
    path.write_bytes(write_tflite(graph))
    made = here(path, chip)
    assert {o["name"]: o["unit"] for o in made.explain["operators"] if o["op"] == "matmul"} == {
        "scores": NNA,
        "y": NNA,
    }
    inputs = inputs_of(graph)
    found = run(made, tmp_path / "nna", inputs)
    np.testing.assert_array_equal(found["y"], evaluate(graph, inputs).outputs["y"])


def test_the_account_of_attention_is_that_of_each_head():
    graph = attention_graph()
    chip = load_board("nna2").nna.chip
    for node, (m, k, n) in zip(graph.nodes[::2], ((50, 32, 50), (50, 50, 32)), strict=True):
        found = account_of_node(chip, graph, node)
        x, w = np.zeros((m, k), np.int8), np.zeros((n, k), np.int8)
        one = emulate_pointwise(x, w, chip=chip, emulator="python").account
        assert one and found.form == "columns"
        assert found.account.cycles == 3 * one.cycles
        assert found.account.macs_useful == 3 * m * k * n
        assert found.account.stalls == {cause: 3 * n for cause, n in one.stalls.items()}


def test_the_account_where_values_play_the_weights():
    graph = attention_graph(heads=2, length=512, depth=9)
    q = dataclasses.replace(graph.tensors["q"], shape=(2, 1, 9))
    scores = dataclasses.replace(graph.tensors["scores"], shape=(2, 1, 512))
    graph = dataclasses.replace(graph, tensors={**graph.tensors, "q": q, "scores": scores})
    chip = load_board("nna2").nna.chip
    found = account_of_node(chip, graph, graph.nodes[0])
    a, b = np.zeros((1, 9), np.int8), np.zeros((9, 512), np.int8)
    one = emulate_matmul(a, b, chip=chip, emulator="python").account
    assert one and found.form == "values" and found.account.cycles == 2 * one.cycles


@pytest.mark.slow
@pytest.mark.parametrize("name", few_or_all(_TINY, list(_TINY)[:1]))
def test_mlperf_tiny_is_bit_for_bit_what_the_cores_compute(name, tmp_path):
    file = Path(_EXTRA or "") / "models" / "mlperf_tiny" / f"{name}.tflite"
    if not _EXTRA or not file.is_file():
        pytest.skip(f"{name} is in EDGEKIT_EXTRA_DATA")
    made, cores = here(file, "nna2"), here(file, None)
    assert len(on_nna(made)) >= _TINY[name]
    for seed in range(3):
        inputs = inputs_of(import_model(file), seed)
        expected = run(cores, tmp_path / f"cores{seed}", inputs)
        for output, found in run(made, tmp_path / f"nna{seed}", inputs).items():
            np.testing.assert_array_equal(found, expected[output])


def emulated(node: Any, graph: Any) -> NnaAccount:
    """The account of a layer of `tiny_graph` from the reference emulator, on random values."""
    random, (x, w) = np.random.default_rng(0), (graph.tensors[t] for t in node.inputs[:2])
    values, kernel = random.integers(-128, 128, x.shape).astype(np.int8), w.data
    options = {"emulator": "python", "chip": load_board("nna2").nna.chip}
    if node.op.kind == "fully_connected" or kernel.shape[1:3] == (1, 1):
        points = values.reshape(-1, x.shape[-1])
        done = emulate_pointwise(points, kernel.reshape(len(kernel), -1), **options)
        return done.account
    # Crop the padded image to what the windows read, as compiled layers do.
    stride, (height, width) = node.op.stride[0], graph.tensors[node.outputs[0]].shape[1:3]
    image = np.pad(values[0], ((1, 1), (1, 1), (0, 0)))
    image = image[: (height - 1) * stride + 3, : (width - 1) * stride + 3]
    if node.op.kind == "conv2d":
        return emulate_conv3x3(image, kernel, stride=stride, **options).account
    return emulate_depthwise3x3(image, kernel[0], stride=stride, **options).account


@pytest.mark.slow
def test_the_account_of_each_layer_is_that_of_the_definition(explained):
    graph = tiny_graph()
    nodes = {node.name: node for node in graph.nodes}
    layers = explained["nna"]["layers"]
    assert {layer["form"] for layer in layers} == {"windows", "diagonal", "points"}
    for layer in layers:
        found = {k: v for k, v in layer.items() if k not in ("name", "form")}
        assert found == emulated(nodes[layer["name"]], graph).document(), layer["name"]


def test_the_account_of_the_whole_is_the_sum_of_its_layers(explained):
    account = explained["nna"]
    total, layers = account["total"], account["layers"]
    for name in ("cycles", "serial_cycles", "macs_useful", "macs_done", "bytes_loaded"):
        assert total[name] == sum(layer[name] for layer in layers) > 0
    for cause, cycles in total["stalls"].items():
        assert cycles == sum(layer["stalls"][cause] for layer in layers)
    assert total["cycles"] < total["serial_cycles"] < total["vector_cycles"]


def test_the_unit_works_beside_the_core_as_in_the_schedule(explained):
    """One branch has a layer the NNA cannot run; the NNA runs the other branch meanwhile."""
    operators = {o["name"]: o for o in explained["operators"]}
    core, beside = operators["layer3"], operators["layer1"]
    assert (core["unit"], beside["unit"]) == ("cpu", NNA)
    assert core["start_us"] < beside["start_us"] + beside["cost_us"]
    assert beside["start_us"] < core["start_us"] + core["cost_us"]
    times = explained["nna"]["schedule"]
    assert times["overlap_us"] > 0
    others = sum(o["cost_us"] for o in operators.values() if o["unit"] != NNA)
    assert times["others_us"] == pytest.approx(others, rel=0.01)
    assert times["makespan_us"] == sum(s["chosen_cost_us"] for s in explained["subgraphs"])
    assert times["makespan_us"] >= times["nna_us"] + times["others_us"] - times["overlap_us"]
    spans = [(o["start_us"], o["start_us"] + o["cost_us"]) for o in operators.values()]
    assert max(end for _, end in spans) <= times["makespan_us"] + 1e-6


def test_the_reason_why_a_layer_is_not_on_the_nna_is_reported(explained):
    why = {o["name"]: o["not_on_nna"] for o in explained["operators"]}
    assert why["layer3"] == "expected windows of at most 3x3, found 5x5"
    assert why["layer10"] == "estimated to be slower there"
    assert why["layer1"] is None and why["sum"] is None


@pytest.mark.slow
def test_boards_without_one_have_no_account(model):
    document = compile_artifact(model, load_board("a53")).explain
    assert document["nna"] is None and nna_lines(document["nna"]) == ()
    assert not any(o["not_on_nna"] for o in document["operators"])


def test_a_report_and_its_trace_have_the_account(explained):
    report = compile_report("0" * 16, "nna2", [explained], _NOW)
    (release,) = data_of(page(report))["subjects"][0]["releases"]
    cycles = explained["nna"]["total"]["cycles"]
    assert f"6 operators in {cycles:,} cycles" in release["nna"][0]
    shown = {o["name"]: o["nna"] for o in release["operators"]}
    assert shown["layer1"].startswith("diagonal: ") and "found 5x5" in shown["layer3"]
    events = json.loads(trace(report))["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    bars = [e for e in events if e["ph"] == "X" and e["pid"] == 2]
    units = {e["name"]: names[2, e["tid"]].split(",")[0] for e in bars}
    assert (units["layer1"], units["layer3"]) == (NNA, "cpu")
    for unit in set(units.values()):
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in bars if units[e["name"]] == unit)
        assert all(a[1] <= b[0] + 0.002 for a, b in itertools.pairwise(mine))
