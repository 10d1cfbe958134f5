"""Core costs are close to recorded times, and the same wherever they are shown."""

from __future__ import annotations

import dataclasses
import functools
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.explain import explain
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.placement import explained, operator_costs, placements
from edgekit.host.report.explained import explain_operators, operators_of
from edgekit.kb.tables.core_rates import FOLDER, rates_of, rates_text
from edgekit.kb.targets.board import load_board
from edgekit.kb.targets.core import core_names, load_core

pytestmark = pytest.mark.slow

_MODELS = Path(__file__).parents[3] / "models"
_RECORD = Path(__file__).parents[2] / "simulator/cycles.json"
_ONE = CompileOptions(threads=1)
_BOARDS = {
    **{core: core for core in ("a53", "a55", "a57", "a7", "a72", "a76")},
    "u74": "rv64gc",
    "x60": "bpi-f3",
}


@functools.cache
def _explained(model: str, name: str, threads: int | None = 1) -> dict[str, Any]:
    """Parse the output of `compile --explain`."""
    board = load_board(name)
    options = dataclasses.replace(_ONE, threads=threads)
    made = prepare(_MODELS / f"{model}.tflite", board, options)
    scheduled, plan = plan_of(made.graph, board, options)
    specs = placements(scheduled, plan, board, threads)
    costs = operator_costs(scheduled, plan, board, specs)
    counts, origin, limit = made.counts, made.origin, made.limit
    return explain(scheduled, plan, board, counts, origin, limit, costs, explained(specs))


def test_every_core_that_has_a_timing_model_has_rates_as_they_are_written():
    assert set(_BOARDS) == {path.stem for path in FOLDER.glob("*.json")}
    without = [name for name in set(core_names()) - set(_BOARDS) if not load_core(name).inherits]
    assert without == [], "inherit from a similar core, or fit rates: scripts/fit_costs.py"
    for core in _BOARDS:
        rates = rates_of(core)
        assert rates is not None and rates_text(rates) == (FOLDER / f"{core}.json").read_text()
        assert {"", "matrix", "window", "function", "move", "simple"} <= set(rates.groups)
    assert rates_of("a510") is None


def test_a_core_without_rates_has_those_of_the_core_that_it_inherits_from():
    model, cores = CostModel(load_board("orion-o6")), ("rpi5", "orion-o6")
    assert model.core() == load_board("orion-o6").timing[0].timed()
    slow, fast = (_explained("okay_nabu", name)["placements"][0]["alone_us"] for name in cores)
    assert fast == pytest.approx(slow, rel=0.1)  # both at 2.4 GHz


def test_costs_are_near_recorded_times():
    """Covers the small models on all cores; `scripts/fit_costs.py check` covers all models."""
    record = json.loads(_RECORD.read_text())
    errors = []
    for core, name in _BOARDS.items():
        for model in ("okay_nabu", "face_detection_short_range", "selfie_segmentation"):
            cycles = record[core].get(model)
            if cycles is None or not (_MODELS / f"{model}.tflite").exists():
                continue
            of_core = CostModel(load_board(name)).core()
            assert of_core is not None
            us = _explained(model, name)["placements"][0]["alone_us"]
            errors.append(abs(us * of_core.clock_mhz / cycles - 1))
    assert len(errors) >= len(_BOARDS) and statistics.median(errors) < 0.25


@pytest.mark.parametrize("name", ["rpi5", "rk3588", "visionfive2"])
def test_costs_of_operators_add_up_to_what_is_printed(name):
    document = _explained("face_detection_short_range", name)
    total = sum(operator["cost_us"] for operator in document["operators"])
    assert total == pytest.approx(document["placements"][0]["alone_us"], rel=1e-3)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_report_shows_the_cost_that_is_printed(threads):
    document = _explained("face_detection_short_range", "rpi5", threads)
    shown = explain_operators(operators_of(document), document, None)
    assert shown.estimate_us == document["placements"][0]["cost_us"]
    costs = {operator["name"]: operator["cost_us"] for operator in document["operators"]}
    assert {o.name: o.estimate_us for o in shown.operators} == costs
    assert shown.estimated_by is not None and ("4 threads" in shown.estimated_by) == (threads == 4)


def _layer(held: float) -> Graph:
    """An 8-bit layer in which a fraction `held` of the weights is nonzero."""
    weights = np.where(np.random.default_rng(1).random((256, 512)) < held, 1, 0).astype(np.float32)
    tensors = [
        Tensor("x", (1, 512), DType.F32),
        Tensor("w", weights.shape, DType.F32, None, weights),
        Tensor("y", (1, 256), DType.F32),
    ]
    node = Node("n", ops.PrunedFullyConnected(), ("x", "w", None), ("y",))
    return Graph("one", {t.name: t for t in tensors}, (node,), ("x",), ("y",))


@pytest.mark.parametrize("name", ["rpi3", "rpi5", "bpi-f3"])
def test_weights_that_are_zero_cost_nothing(name):
    costs = CostModel(load_board(name))
    most, few = (costs.cost(graph, graph.nodes[0]) for graph in (_layer(0.9), _layer(0.1)))
    assert few < 0.5 * most
