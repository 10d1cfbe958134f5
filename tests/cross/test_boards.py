"""Every board computes the same results as this machine, and rejects what it cannot run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.agent.manifest import LIBRARY, WEIGHTS
from edgekit.host.compiler.driver import compile_artifact
from edgekit.host.compiler.exporters.tflite.writer import write_tflite
from edgekit.host.compiler.ir import ops
from edgekit.host.lab.bench.process import Worker
from edgekit.host.lab.zoo.cases import make_cases
from edgekit.host.lab.zoo.models import compile_release, extended_zoo
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import CPUS, RVV
from tests.support.kernel_runs import build
from tests.support.nna_model import attention_graph, tiny_graph
from tests.support.op_cases import Case, tensor
from tests.support.op_graphs import graph_of
from tests.support.places import few_or_all

pytestmark = pytest.mark.cross

_MODELS = Path(__file__).parents[2] / "models"
_ZOO = extended_zoo(_MODELS)
_BOARDS = ["a57", "a76", "a7", "rv64gc", *RVV]
_NABU, _FACE = ["okay_nabu", "face_detection_short_range"]
_ONE_OF_QUICK = [_NABU, pytest.param(_FACE, marks=pytest.mark.exhaustive)]
_FLOAT_TOLERANCE = 1e-4
_LONGER = "vector registers of at least {} bits, not of {}"


def _outputs_agree(model, board, virtual_board, tmp_path, calls, threads=1, cpu=None, remote=None):
    local = compile_release(model, "local", tmp_path)
    with Worker("edgekit", local) as worker:
        cases = make_cases(worker.inputs, calls, _ZOO.samples(), steps=40 if worker.stateful else 1)
        cases.save(tmp_path / "in.npz")
        worker.run(tmp_path / "in.npz", tmp_path / "out.npz", cases.steps)
    remote = remote or compile_release(model, board, tmp_path)
    found = virtual_board(board, cpu).run(remote, cases, tmp_path, threads)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as stored:
        expected = [stored[f"out{i}"] for i in range(len(stored.files))]
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        if ours.dtype.kind == "f":
            for row, reference in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(
                    row, reference, rtol=0, atol=_FLOAT_TOLERANCE * np.abs(reference).max()
                )
        else:
            np.testing.assert_array_equal(ours, theirs)


def _small() -> Iterator[Any]:
    """One model and core by default; the kernels of the others have tests of their own."""
    yield from few_or_all(itertools.product((_NABU, _FACE), _BOARDS), [(_NABU, "a57")])


@pytest.mark.parametrize(("name", "board"), list(_small()))
def test_small_models_compute_the_same_as_here(name, board, virtual_board, tmp_path):
    model = _MODELS / f"{name}.tflite"
    _outputs_agree(model, board, virtual_board, tmp_path, calls=2)


@pytest.mark.parametrize(
    ("board", "runs_on"),
    few_or_all(
        [("rv64gcv", "bpi-f3"), ("rv64gcv", "rv64gcv-zvl512b"), ("bpi-f3", "rv64gcv-zvl512b")],
        [("rv64gcv", "rv64gcv-zvl512b")],
    ),
)
@pytest.mark.parametrize("name", _ONE_OF_QUICK)
def test_longer_vectors_than_compiled_for_compute_the_same(
    name, board, runs_on, virtual_board, tmp_path
):
    model = _MODELS / f"{name}.tflite"
    _outputs_agree(model, board, virtual_board, tmp_path, calls=2, cpu=CPUS[runs_on])


def _on_nna() -> Iterator[Any]:
    """8-bit models with layers that the NNA supports."""
    tiny = ("kws_ref_model", "pretrainedResnet_quant", "vww_96_int8", "ad01_int8")
    for path in _ZOO.models:
        if path.stem in (_NABU, *tiny):
            marks = () if path.stem == _NABU else pytest.mark.exhaustive
            yield pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.exhaustive
@pytest.mark.parametrize("made", [tiny_graph, attention_graph], ids=lambda made: made.__name__)
def test_all_kinds_of_operators_on_the_nna_compute_the_same_as_the_cores_here(
    made, virtual_board, tmp_path
):
    model = tmp_path / "model.tflite"
    model.write_bytes(write_tflite(made()))
    _nna_agrees(model, virtual_board, tmp_path)


@pytest.mark.parametrize("model", list(_on_nna()))
def test_layers_on_the_nna_compute_the_same_as_the_cores_here(model, virtual_board, tmp_path):
    _nna_agrees(model, virtual_board, tmp_path)


def _nna_agrees(model, virtual_board, tmp_path):
    nna2 = load_board("nna2")
    slow = replace(nna2.speeds[0], s8_per_cycle=0.01)  # everything the NNA supports goes there
    artifact = compile_artifact(model, replace(nna2, compute=(slow,)))
    units = {o["name"]: o["unit"] for o in artifact.explain["operators"]}
    there = [o["name"] for o in artifact.description["operators"] if "nna" in o["kernel"]]
    assert there and there == [name for name, unit in units.items() if unit == "nna"]
    remote = tmp_path / "nna"
    remote.mkdir()
    (remote / LIBRARY).write_bytes(artifact.library)
    (remote / WEIGHTS).write_bytes(artifact.weights)
    _outputs_agree(model, "nna2", virtual_board, tmp_path, 2, cpu="cortex-a53", remote=remote)


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.exhaustive), 2])
@pytest.mark.parametrize("name", _ONE_OF_QUICK)
def test_two_clusters_compute_the_same_as_one_core_here(name, threads, virtual_board, tmp_path):
    model = _MODELS / f"{name}.tflite"
    explained = compile_artifact(model, load_board("rk3399")).explain
    units = {o["name"]: o["unit"] for o in explained["operators"]}
    assert {"cpu", "little"} in [{units[n] for n in s["operators"]} for s in explained["subgraphs"]]
    _outputs_agree(model, "rk3399", virtual_board, tmp_path, 2, threads, cpu="cortex-a72")


@pytest.mark.long
@pytest.mark.parametrize("board", _BOARDS)
@pytest.mark.parametrize("model", _ZOO.models, ids=lambda path: path.stem)
def test_all_models_compute_the_same_as_here(model, board, virtual_board, tmp_path):
    _outputs_agree(model, board, virtual_board, tmp_path, calls=4, threads=2)


@pytest.mark.parametrize(
    ("board", "lesser_cpu", "feature"),
    [
        ("a76", "cortex-a57", "asimddp"),
        ("rv64gcv", "rv64,v=false", "v"),
        ("bpi-f3", CPUS["rv64gcv"], _LONGER.format(256, 128)),
        ("rv64gcv-zvl512b", CPUS["rv64gcv"], _LONGER.format(512, 128)),
        pytest.param(
            "rv64gcv-zvl512b",
            CPUS["bpi-f3"],
            _LONGER.format(512, 256),
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=lambda value: "" if " " in value else value,
)
def test_a_cpu_without_a_needed_feature_is_refused(
    board, lesser_cpu, feature, virtual_board, tmp_path
):
    graph = graph_of([Case(ops.Abs(), (tensor((3,)),))])
    library = build(graph, load_board(board), tmp_path / "release") / "model.so"
    refused = virtual_board(board, lesser_cpu).execute(str(library))
    assert (refused.returncode, refused.stdout.strip()) == (3, feature)
    assert virtual_board(board).execute(str(library)).returncode == 0
