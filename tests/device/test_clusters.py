"""Detecting core clusters from boards' sysfs files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.clusters import find_clusters, ranges
from tests.support.boards_sys import PI4, RK3399, RK3588, fake_board

EVERY = frozenset(range(8))


def test_the_two_policies_of_four_fast_cores_are_one_cluster(tmp_path: Path) -> None:
    big, little = find_clusters(fake_board(tmp_path, RK3588), EVERY)
    assert (big.name, big.core, big.cores, big.usable) == ("big", "cortex-a76", *[(4, 5, 6, 7)] * 2)
    assert (big.capacity, big.max_mhz, big.governor) == (1024, 2400.0, "performance")
    assert (little.name, little.core, little.cores) == ("little", "cortex-a55", (0, 1, 2, 3))
    assert (little.capacity, little.governor) == (381, "ondemand")


@pytest.mark.parametrize("registers", [True, False])
def test_a_kernel_without_capacities_still_tells_the_fast_cluster(
    tmp_path: Path, registers: bool
) -> None:
    found = find_clusters(fake_board(tmp_path, RK3399, registers), EVERY)
    assert [(c.name, c.core, c.cores) for c in found] == [
        ("big", "cortex-a72", (4, 5)),
        ("little", "cortex-a53", (0, 1, 2, 3)),
    ]


def test_small_cores_with_the_higher_clock_are_not_the_fast_ones(tmp_path: Path) -> None:
    cores = [replace(c, max_mhz=2000) if c.max_mhz < 1800 else c for c in RK3399]
    assert find_clusters(fake_board(tmp_path, cores), EVERY)[0].core == "cortex-a72"


def test_cores_of_one_kind_are_one_cluster_named_all(tmp_path: Path) -> None:
    (only,) = find_clusters(fake_board(tmp_path, PI4), EVERY)
    assert (only.name, only.cores, only.capacity) == ("all", (0, 1, 2, 3), None)


def test_three_speeds_have_a_middle_cluster(tmp_path: Path) -> None:
    prime = replace(RK3588[4], max_mhz=3200, capacity=1024)
    cores = [*RK3588[:4], *[replace(RK3588[4], capacity=800)] * 3, prime]
    found = find_clusters(fake_board(tmp_path, cores), EVERY)
    assert [(c.name, len(c.cores)) for c in found] == [("big", 1), ("middle", 3), ("little", 4)]


def test_a_container_with_fewer_cores_and_cores_that_are_off(tmp_path: Path) -> None:
    cores = [*RK3588[:7], replace(RK3588[7], online=False)]
    big, little = find_clusters(fake_board(tmp_path, cores), {1, 6})
    assert (big.cores, big.usable) == ((4, 5, 6), (6,))
    assert (little.cores, little.usable) == ((0, 1, 2, 3), (1,))


def k1(root: Path, third_level: bool = False, own: bool = False) -> Path:
    """A file tree describing the eight cores of a SpacemiT K1."""
    for number in range(8):
        shared = str(number) if own else "0-3" if number < 4 else "4-7"
        levels = [(1, str(number)), (2, shared), *([(3, "0-7")] if third_level else [])]
        for index, (level, cores) in enumerate(levels):
            cache = root / f"sys/devices/system/cpu/cpu{number}/cache/index{index}"
            cache.mkdir(parents=True)
            (cache / "level").write_text(f"{level}\n")
            (cache / "shared_cpu_list").write_text(f"{cores}\n")
    blocks = [f"processor\t: {number}\nuarch\t: spacemit,x60\n" for number in range(8)]
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text("\n".join(blocks))
    return root


def test_like_cores_that_share_no_cache_are_two_clusters(tmp_path: Path) -> None:
    found = find_clusters(k1(tmp_path), EVERY)
    assert [(c.name, c.core, c.cores) for c in found] == [
        ("cluster0", "spacemit-x60", (0, 1, 2, 3)),
        ("cluster1", "spacemit-x60", (4, 5, 6, 7)),
    ]


@pytest.mark.parametrize(("third_level", "own"), [(True, False), (False, True)])
def test_a_third_level_joins_them_and_caches_of_one_core_say_nothing(
    tmp_path: Path, third_level: bool, own: bool
) -> None:
    (only,) = find_clusters(k1(tmp_path, third_level, own), EVERY)
    assert (only.name, only.cores) == ("all", tuple(range(8)))


def test_without_sys_the_list_of_cores_is_enough(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nuarch\t: spacemit,x60\n")
    (found,) = find_clusters(tmp_path, {0})
    assert (found.core, found.cores, found.max_mhz) == ("spacemit-x60", (0,), None)


def test_a_kernel_that_tells_nothing_leaves_the_usable_cores(tmp_path: Path) -> None:
    (found,) = find_clusters(tmp_path, {0, 2})
    assert (found.name, found.core, found.usable) == ("all", "", (0, 2))


def test_files_of_nonsense_say_nothing(tmp_path: Path) -> None:
    root = fake_board(tmp_path, PI4)
    for path in root.rglob("*"):
        if path.is_file() and path.name not in ("online", "cpuinfo"):
            path.write_bytes(b"\xff nonsense")
    (found,) = find_clusters(root, EVERY)
    assert (found.core, found.cores, found.max_mhz) == ("cortex-a72", (0, 1, 2, 3), None)


def test_the_cores_of_this_machine_are_those_it_may_use() -> None:
    usable = [core for cluster in find_clusters() for core in cluster.usable]
    assert set(usable) <= os.sched_getaffinity(0)


def test_numbers_of_cores_are_shown_as_ranges() -> None:
    assert ranges((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"
