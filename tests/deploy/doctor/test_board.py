"""Comparing the facts a board reports with its profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.clusters import find_clusters
from edgekit.device.runtime.agent.probe import Probe
from edgekit.host.deploy.doctor.board import compare
from edgekit.host.deploy.doctor.types import Finding, Verdict
from edgekit.host.deploy.release.probed import OLDEST_GLIBC
from edgekit.kb.targets.board import board_names, load_board
from tests.support.boards_sys import PI4, RK3588, fake_board
from tests.support.probes import JETSON_NANO

NOW = 1_800_000_000.0
A57 = replace(JETSON_NANO, clock=NOW + 1)
X60 = replace(
    A57,
    machine="riscv64",
    core_names=("spacemit-x60",),
    features=("v", "zba", "zbb"),
    vlen_bits=256,
    cores=8,
    memory_bytes=4 << 30,
)


def findings(probe: Probe, profile: str) -> dict[str, Finding]:
    return {f.check: f for f in compare(probe, load_board(profile), NOW)}


@pytest.mark.parametrize(("probe", "profile"), [(A57, "a57"), (X60, "rv64gcv-zvl256b")])
def test_a_board_like_its_profile_is_all_well(probe: Probe, profile: str) -> None:
    assert {f.verdict for f in findings(probe, profile).values()} == {Verdict.OK}


@pytest.mark.parametrize(
    ("change", "check", "verdict", "said"),
    [
        ({"machine": "armv7l"}, "machine", Verdict.FAIL, "armv7l"),
        ({"c_library": "musl"}, "C library", Verdict.FAIL, "musl; no model can run"),
        ({"c_library": "glibc 2.27"}, "C library", Verdict.FAIL, "glibc 2.27"),
        ({"c_library": "another"}, "C library", Verdict.FAIL, "another"),
        ({"core_names": ("cortex-a53",)}, "machine", Verdict.WARN, "cortex-a57"),
        ({"features": ("fp",)}, "cpu features", Verdict.FAIL, "asimd"),
        ({"cores": 2}, "cores", Verdict.INFO, "2 usable"),
        ({"available_bytes": 1 << 20}, "memory", Verdict.WARN, "1 MiB"),
        ({"memory_bytes": 1 << 29}, "memory", Verdict.INFO, "2048 MiB"),
        ({"memory_bytes": None}, "memory", Verdict.WARN, "not reported"),
        ({"disk_free_bytes": 1 << 20}, "disk", Verdict.WARN, "1 MiB"),
        ({"python": "3.8.10"}, "board python", Verdict.FAIL, "3.8.10"),
        ({"ssh_keygen": False}, "signatures", Verdict.WARN, "--allow-unsigned"),
        ({"clock": 100.0}, "clock", Verdict.WARN, "1970-01-01 00:01 UTC, 57 years behind"),
        ({"clock": NOW + 7200}, "clock", Verdict.WARN, "2 hours ahead"),
        ({"perf_event_paranoid": 3}, "perf", Verdict.INFO, "paranoid 3"),
        ({"perf_event_paranoid": None}, "perf", Verdict.INFO, "no perf"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_differences_are_reported_with_a_fix(
    change: dict[str, Any], check: str, verdict: Verdict, said: str
) -> None:
    found = findings(replace(A57, **change), "a57")
    assert found[check].verdict is verdict
    assert said in found[check].found
    assert found[check].fix
    assert all(f.verdict is Verdict.OK for name, f in found.items() if name != check)


def test_the_fix_fits_what_was_found() -> None:
    def fix(check: str, **change: Any) -> str:
        return findings(replace(A57, **change), "a57")[check].fix

    assert "apk add gcompat" in fix("C library", c_library="musl")
    assert "Debian 10" in fix("C library", c_library="glibc 2.9")
    assert "install a 64-bit system" in fix("machine", machine="armv7l")
    for enough in ("glibc 2.28", "glibc 2.100.1", ""):
        assert not fix("C library", c_library=enough)


def test_all_targets_need_the_same_glibc() -> None:
    oldest = ".".join(map(str, OLDEST_GLIBC))
    for name in board_names()[1:]:
        assert load_board(name).target.endswith(f".{oldest}"), name


def test_shorter_vectors_than_compiled_for_fail() -> None:
    found = findings(replace(X60, vlen_bits=64), "rv64gcv")["cpu features"]
    assert found.verdict is Verdict.FAIL
    assert "64 bits" in found.found
    assert "128" in found.found


@pytest.mark.parametrize(
    ("found_bits", "profile", "better"),
    [(256, "rv64gcv", "rv64gcv-zvl256b"), (1024, "rv64gcv-zvl256b", "rv64gcv-zvl512b")],
)
def test_longer_vectors_are_reported_with_their_profile(
    found_bits: int, profile: str, better: str
) -> None:
    core_names = X60.core_names if found_bits == 256 else ()
    board = replace(X60, vlen_bits=found_bits, core_names=core_names)
    found = findings(board, profile)["cpu features"]
    assert found.verdict is Verdict.INFO
    assert f"vectors of {found_bits} bits; bundles for {profile} use" in found.found
    assert better in found.fix
    assert findings(board, better)["cpu features"].verdict is Verdict.OK


def test_features_for_half_precision_only_are_reported_and_fail_nothing() -> None:
    found = findings(X60, "bpi-f3")["cpu features"]
    assert found.verdict is Verdict.INFO
    assert "does not report zvfh" in found.found
    found = findings(replace(X60, features=(*X60.features, "zvfh")), "bpi-f3")["cpu features"]
    assert found.verdict is Verdict.OK
    assert found.found == "v, zvfh, vectors of 256 bits"


def test_clusters_are_shown_with_cores_clock_and_governor(tmp_path: Path) -> None:
    clusters = find_clusters(fake_board(tmp_path, RK3588), frozenset(range(8)))
    found = findings(replace(A57, clusters=clusters), "a57")
    assert found["cluster big"].found == (
        "4 x cortex-a76 (4-7) at up to 2400 MHz, governor performance"
    )
    assert found["cluster little"].verdict is Verdict.OK


def test_a_cluster_with_forbidden_cores_is_reported(tmp_path: Path) -> None:
    clusters = find_clusters(fake_board(tmp_path, PI4), {0, 2})
    found = findings(replace(A57, clusters=clusters), "a57")["cluster"]
    assert found.verdict is Verdict.INFO
    assert found.fix
    assert "2 usable" in found.found


def test_a_governor_of_the_lowest_clock_is_reported_with_a_fix(tmp_path: Path) -> None:
    slow = [replace(core, governor="powersave") for core in PI4]
    clusters = find_clusters(fake_board(tmp_path, slow), frozenset(range(4)))
    found = findings(replace(A57, clusters=clusters), "a57")["cluster"]
    assert found.verdict is Verdict.INFO
    assert "scaling_governor" in found.fix
