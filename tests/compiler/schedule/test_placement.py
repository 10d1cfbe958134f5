"""Cost-based choice of thread count and cluster; no C is compiled."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.specs import PlacementSpec
from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.lowering.plan import Plan
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.placement import check_placement, placements
from edgekit.host.compiler.schedule.types import Schedule
from edgekit.host.errors import InputError
from edgekit.host.simulator.target import on_cluster, target_of
from edgekit.kb.targets.board import board_names, load_board, load_profile
from edgekit.kb.targets.clusters import cluster_named, clusters_of
from tests.support.op_cases import Case, tensor
from tests.support.op_graphs import graph_of

MODELS = Path(__file__).parents[3] / "models"
TINY, FACE = "okay_nabu", "face_detection_short_range"


@functools.cache
def planned(model: str, board: str) -> tuple[Schedule, Plan]:
    profile = load_profile(board)
    made = prepare(MODELS / f"{model}.tflite", profile)
    return plan_of(made.graph, profile, DEFAULT_OPTIONS)


def placed(
    model: str, board: str, threads: int | None = None, cluster: str = ""
) -> tuple[PlacementSpec, ...]:
    return placements(*planned(model, board), load_profile(board), threads, cluster)


@pytest.mark.parametrize("board", ["rk3588", "rk3399", "rpi4", "rpi5"])
def test_a_model_of_some_microseconds_runs_on_one_thread(board: str) -> None:
    assert placed(TINY, board)[0].threads == 1


@pytest.mark.parametrize(
    ("board", "cluster", "core", "threads"),
    [("rk3588", "big", "a76", 4), ("rk3399", "little", "a53", 4), ("rpi4", "all", "", 4)],
)
def test_a_model_of_milliseconds_runs_on_all_cores_of_the_fastest_cluster(
    board: str, cluster: str, core: str, threads: int
) -> None:
    best = placed(FACE, board)[0]
    assert (best.cluster, best.core, best.threads) == (cluster, core, threads)
    assert best.cost_us < best.alone_us / 1.5


def test_a_model_without_weights_and_memory_of_its_own_is_placed() -> None:
    profile = load_profile("rpi5")
    graph = graph_of([Case(ops.Softmax(), (tensor((12, 128, 128)),))])
    best = placements(*plan_of(graph, profile, DEFAULT_OPTIONS), profile, None, "")[0]
    assert best.cost_us > 0


# Speedup with 2 and with 4 threads over one, in simulated time.
GAINS = {"rpi3": (1.82, 2.93), "rpi4": (1.75, 2.76), "rpi5": (1.91, 3.62)}


def costed_gain(board: str, threads: int) -> float:
    spec = placed(FACE, board, threads)[0]
    return spec.alone_us / spec.cost_us


@pytest.mark.parametrize("board", GAINS)
def test_the_cost_model_predicts_what_threads_gain_in_the_simulator(board: str) -> None:
    found = [costed_gain(board, threads) for threads in (2, 4)]
    assert found == pytest.approx(GAINS[board], rel=0.15)


def test_threads_gain_most_where_caches_hold_the_model() -> None:
    most = max(GAINS, key=lambda board: GAINS[board][1])
    assert max(GAINS, key=lambda board: costed_gain(board, 4)) == most == "rpi5"


def test_every_cluster_has_a_cost_the_cheapest_first() -> None:
    found = placed(FACE, "rk3588")
    assert sorted(spec.cluster for spec in found) == ["big", "big+little", "little"]
    assert found[0].cluster == "big"
    assert [spec.cost_us for spec in found] == sorted(spec.cost_us for spec in found)


def test_two_equal_clusters_are_distinguished_and_the_first_is_the_default() -> None:
    found = placed(FACE, "bpi-f3")
    assert [(spec.cluster, spec.core, spec.threads) for spec in found] == [
        ("cluster0", "x60", 4),
        ("cluster1", "x60", 4),
    ]
    assert placed(FACE, "bpi-f3", cluster="cluster1")[0].cluster == "cluster1"


def test_both_clusters_run_the_queues_of_the_schedule_if_a_user_asks() -> None:
    best = placed(FACE, "rk3588", cluster="a76+a55")[0]
    assert (best.cluster, best.threads) == ("big+little", 2)
    sections = [section for section in planned(FACE, "rk3588")[1].sections if section.queues]
    units = planned(FACE, "rk3588")[0].units
    steps = planned(FACE, "rk3588")[1].lowered.steps
    assert sections
    for section in sections:  # the calling thread, on a fast core, takes the first queue
        for queue, unit in zip(section.queues, ("cpu", "little"), strict=True):
            names = [steps[section.first + waiting.step].name for waiting in queue]
            assert {units.get(name, "cpu") for name in names} == {unit}


def test_x86_is_left_at_one_thread_unless_a_user_asks() -> None:
    assert placed(TINY, "x86-64-v4") == ()
    assert placed(TINY, "x86-64-v4", threads=2)[0].threads == 2


def test_options_of_the_user_override_the_cost_model() -> None:
    found = placed(FACE, "rk3588", 3, "little")
    assert [(spec.cluster, spec.threads) for spec in found] == [("little", 3), ("big", 3)]
    assert [spec.cluster for spec in placed(FACE, "rk3399", 3)] == ["little"]  # big has two


def test_a_lone_cluster_answers_to_its_kind_of_core() -> None:
    for name in ("a76", "cortex-a76", "all"):
        assert cluster_named(load_board("rpi5"), name).name == "all"
        check_placement(load_board("rpi5"), 4, name)
    with pytest.raises(InputError, match=r"cluster of rpi5, all \(4 x a76\), found 'a55'"):
        check_placement(load_board("rpi5"), None, "a55")
    with pytest.raises(InputError, match=r"all \(\d+ x core\), found '-'"):
        check_placement(load_profile("x86-64-v4"), None, "-")


@pytest.mark.parametrize(
    ("threads", "cluster", "said"),
    [
        (None, "huge", r"expected a cluster of rk3399, big \(2 x a72\), little \(4 x a53\).*huge"),
        (5, "", "expected at most 4, the cores of the largest cluster of rk3399, found 5"),
        (3, "big", "expected at most 2, the cores of big of rk3399, found 3"),
        (3, "big+little", "expected at most 2, .*found 3"),
        (None, "big+huge", "expected a cluster of rk3399.*'huge'"),
    ],
)
def test_wrong_names_and_numbers_are_one_line(threads: int | None, cluster: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        check_placement(load_board("rk3399"), threads, cluster)
    assert "\n" not in str(caught.value)


def test_clusters_of_profiles_have_the_cores_of_the_board() -> None:
    for name in board_names()[1:]:
        board = load_board(name)
        assert sum(cluster.cores for cluster in clusters_of(board)) == board.cores


def test_clusters_are_found_by_name_and_by_kind_of_core() -> None:
    board = load_board("rk3588")
    for name in ("little", "a55", "cortex-a55", "Cortex-A55"):
        assert cluster_named(board, name).name == "little"


def test_an_estimate_is_of_the_cluster_that_is_asked_for() -> None:
    board = load_board("rk3588")
    assert target_of(on_cluster(board, "")).core.name == "a76"
    assert target_of(on_cluster(board, "little")).core.name == "a55"
    with pytest.raises(InputError, match="expected a cluster of rk3588"):
        on_cluster(board, "huge")
