"""Large graphs, where optimality cannot be proved: the search's gap to the best known order."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.host.compiler.costs.model import CostModel
from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.schedule.schedule import schedule
from edgekit.host.compiler.schedule.search import USUAL, Effort
from edgekit.kb.targets.board import load_board

_MODELS = Path(__file__).parents[3] / "models"
_LONG = Effort(sets=USUAL.sets, ways=20 * USUAL.ways, samples=200, nodes=20 * USUAL.nodes)
_LARGE = ("face_detection_full_range", "face_detection_front", "pose_detection", "okay_nabu")


@pytest.mark.long
@pytest.mark.parametrize("board", ["rk3588", "rk3399"])
@pytest.mark.parametrize("name", _LARGE)
def test_a_search_comes_within_two_percent_of_one_twenty_times_as_long(name, board):
    profile = load_board(board)
    costs = CostModel(profile)
    graph = prepare(_MODELS / f"{name}.tflite", profile).graph
    usual = schedule(graph, profile, model=costs).makespan_us
    best = min(
        schedule(
            graph, profile, CompileOptions(random_seed=seed), model=costs, effort=_LONG
        ).makespan_us
        for seed in range(2)
    )
    assert usual <= 1.02 * best
