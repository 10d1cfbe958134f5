"""Thread count and cores of a model, as set by its release and by the board."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.clusters import Cluster, find_clusters
from edgekit.device.runtime.agent.manifest import parse_manifest
from edgekit.device.runtime.agent.placement import Placement, place
from edgekit.device.runtime.agent.specs import PlacementRequest, PlacementSpec
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.pools import on_cores
from edgekit.host.deploy.bundle import Bundle
from tests.device.test_clusters import k1
from tests.support.boards_sys import PI4, RK3588, FakeCore, fake_board

BIG = PlacementSpec("big", "a76", 4, 900.0, 3000.0)
SPECS = (BIG, PlacementSpec("little", "a55", 3, 4000.0, 9000.0))
ANYWHERE = (PlacementSpec("all", "", 4, 900.0, 3000.0),)


def board(
    folder: Path, cores: Sequence[FakeCore] = RK3588, usable: Sequence[int] = range(8)
) -> tuple[Cluster, ...]:
    return find_clusters(fake_board(folder, cores), set(usable))


def test_the_release_s_best_cluster_is_the_default(tmp_path: Path) -> None:
    found = place(SPECS, PlacementRequest(), board(tmp_path))
    assert found == Placement(4, "big", (4, 5, 6, 7))
    assert found.said == "4 threads on big (cores 4-7)"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (PlacementRequest(2), Placement(2, "big", (4, 5, 6, 7))),
        (PlacementRequest(8), Placement(8)),  # exceeds the cluster: use all cores
        (PlacementRequest(cluster="little"), Placement(3, "little", (0, 1, 2, 3))),
        (PlacementRequest(2, "cortex-a55"), Placement(2, "little", (0, 1, 2, 3))),
        (PlacementRequest(cluster="A76"), Placement(4, "big", (4, 5, 6, 7))),
        (PlacementRequest(cluster="all"), Placement(8)),
        (PlacementRequest(5, "all"), Placement(5)),
    ],
    ids=str,
)
def test_options_of_the_user_override_the_release(
    tmp_path: Path, asked: PlacementRequest, expected: Placement
) -> None:
    assert place(SPECS, asked, board(tmp_path)) == expected


@pytest.mark.parametrize(
    ("asked", "usual", "expected"),
    [
        (PlacementRequest(), PlacementRequest(4, "big"), PlacementRequest(4, "big")),
        (PlacementRequest(2), PlacementRequest(4, "big"), PlacementRequest(2, "big")),
        (PlacementRequest(cluster="big"), PlacementRequest(4, "big"), PlacementRequest(4, "big")),
        (
            PlacementRequest(cluster="little"),
            PlacementRequest(4, "big"),
            PlacementRequest(None, "little"),
        ),
        (PlacementRequest(cluster="little"), PlacementRequest(1), PlacementRequest(1, "little")),
        (PlacementRequest(1, "little"), PlacementRequest(4, "big"), PlacementRequest(1, "little")),
    ],
    ids=str,
)
def test_a_request_overrides_the_default_whose_threads_belong_to_its_cluster(
    asked: PlacementRequest, usual: PlacementRequest, expected: PlacementRequest
) -> None:
    assert asked.over(usual) == expected


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            PlacementRequest(cluster="huge"),
            r"big \(4 x cortex-a76\), little \(4 x cortex-a55\), or all, .*huge",
        ),
        (PlacementRequest(5, "big"), "expected 1 to 4 threads on big .*found 5"),
    ],
)
def test_clusters_that_are_not_there_and_too_many_threads_are_refused(
    tmp_path: Path, asked: PlacementRequest, said: str
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        place(SPECS, asked, board(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_container_with_fewer_cores_takes_fewer_threads_and_says_so(tmp_path: Path) -> None:
    found = place(SPECS, PlacementRequest(), board(tmp_path, usable=(0, 1, 5)))
    assert (found.threads, found.cluster, found.cores) == (1, "big", (5,))
    assert found.note == "4 would be best, but only 1 of its cores can be used"


def test_a_container_without_the_cluster_leaves_the_threads_free(tmp_path: Path) -> None:
    found = place(SPECS, PlacementRequest(), board(tmp_path, usable=(0, 1)))
    assert (found.threads, found.cores) == (2, ())
    assert found.note == "no core of big can be used"
    with pytest.raises(InputError, match="none in big: "):
        place(SPECS, PlacementRequest(cluster="big"), board(tmp_path, usable=(0, 1)))


X60 = (PlacementSpec("cluster0", "x60", 4, 900.0, 3000.0),) * 2


@pytest.mark.parametrize(
    ("usable", "asked", "expected"),
    [
        (range(8), PlacementRequest(), Placement(4, "cluster0", (0, 1, 2, 3))),
        (range(8), PlacementRequest(cluster="cluster1"), Placement(4, "cluster1", (4, 5, 6, 7))),
        ((1, 4, 5, 6, 7), PlacementRequest(), Placement(4, "cluster1", (4, 5, 6, 7))),
        (range(8), PlacementRequest(8), Placement(8)),
    ],
    ids=str,
)
def test_of_two_clusters_alike_it_is_the_release_s_unless_the_other_has_more_cores(
    tmp_path: Path, usable: Sequence[int], asked: PlacementRequest, expected: Placement
) -> None:
    assert place(X60, asked, find_clusters(k1(tmp_path), set(usable))) == expected


def test_another_board_s_release_goes_to_any_core(tmp_path: Path) -> None:
    found = place(SPECS, PlacementRequest(), board(tmp_path, PI4))
    assert found == Placement(4, note="no cluster of a76 here")


def test_a_release_of_any_core_goes_to_the_fastest_cluster(tmp_path: Path) -> None:
    assert place(ANYWHERE, PlacementRequest(), board(tmp_path)) == Placement(4, "big", (4, 5, 6, 7))
    assert place(ANYWHERE, PlacementRequest(), board(tmp_path / "pi", PI4, range(4))) == Placement(
        4
    )
    assert place(ANYWHERE, PlacementRequest(), board(tmp_path / "two", PI4, (1, 2))).threads == 2


def test_without_a_word_of_the_release_it_is_one_thread_on_any_core() -> None:
    assert place(()) == Placement(1)
    assert place((), PlacementRequest(3)) == Placement(3)


def test_a_thread_on_each_cluster_for_the_queues_of_a_schedule(tmp_path: Path) -> None:
    found = place(SPECS, PlacementRequest(cluster="big+little"), board(tmp_path))
    assert found == Placement(2, "big+little", (4, 5, 6, 7), workers=(0, 1, 2, 3))
    assert found.said == "2 threads on big+little (cores 4-7 and 0-3)"
    both = (PlacementSpec("big+little", "", 2, 100.0, 150.0), *SPECS)
    assert place(both, PlacementRequest(), board(tmp_path)) == found
    assert (
        place(both, PlacementRequest(), board(tmp_path / "pi", PI4)).note
        == "no cluster of a76 here"
    )
    for asked in (
        PlacementRequest(3, "big+little"),
        PlacementRequest(cluster="big+big"),
        PlacementRequest(cluster="big+"),
    ):
        with pytest.raises(InputError):
            place(both, asked, board(tmp_path))


_THREADS = """
import json, os, sys
from pathlib import Path
from edgekit.device.runtime.pools import on_cores
from edgekit.device.runtime.shared_library import open_library, start_pool

everywhere, core = os.sched_getaffinity(0), max(os.sched_getaffinity(0))
library = open_library(Path(sys.argv[1]))
before = set(os.listdir("/proc/self/task"))
with on_cores((core,)):
    pool = start_pool(library, 3)
    workers = set(os.listdir("/proc/self/task")) - before
found = [sorted(os.sched_getaffinity(int(thread))) for thread in workers]
assert os.sched_getaffinity(0) == everywhere
library.ek_pool_destroy(pool)
print(json.dumps([core, found]))
"""


def test_threads_of_a_pool_stay_on_the_cluster_they_were_made_on() -> None:
    from edgekit.host.local_kernels import local_library

    done = subprocess.run(
        [sys.executable, "-c", _THREADS, str(local_library())],
        capture_output=True,
        text=True,
        check=True,
    )
    core, found = json.loads(done.stdout)
    assert found == [[core], [core]]


def test_the_calling_thread_is_kept_there_and_set_free_again() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)
    with on_cores((core,)):
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before


def test_cores_that_linux_refuses_leave_the_thread_free() -> None:
    before = os.sched_getaffinity(0)
    with on_cores((1023,)):
        assert os.sched_getaffinity(0) == before


def test_the_placements_of_a_manifest(paper: Callable[..., Bundle]) -> None:
    plain = paper().manifest
    made = replace(plain, placements=SPECS).with_id()
    text = made.to_json()
    assert parse_manifest(text) == made
    many = replace(plain, placements=SPECS * 17).with_id().to_json()
    with pytest.raises(InputError, match="placements: expected at most 16"):
        parse_manifest(many)
    odd = {**json.loads(text)["placements"][0], "threads": 0}
    with pytest.raises(InputError, match=r"placements\[0\].threads: expected a whole number"):
        parse_manifest(json.dumps(json.loads(text) | {"placements": [odd]}).encode())
