"""The plugin's timing of loops whose time on a core is known."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.simulator.core_text import core_text
from edgekit.host.simulator.emulator import find_emulator, plugin_of
from edgekit.host.simulator.run import GUEST_BYTES
from edgekit.kb.targets.core import Core, load_core
from tests.support.patience import AMPLE

PROGRAMS = Path(__file__).parent / "programs"
LAPS = (
    "adds",
    "chain",
    "independent",
    "first level",
    "second level, cold",
    "second level",
    "memory",
    "predictable",
    "random",
    "",
    "chase first level",
    "",
    "chase memory",
)
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("qemu-aarch64", "qemu-riscv64"))),
    reason="QEMU's user emulators are not installed: apt-get install qemu-user",
)


def built(folder: Path, name: str, *flags: str) -> Path:
    """Builds a program of `programs/` for the instruction set in its name."""
    target = "riscv64-linux-musl" if name.endswith("rv64") else "aarch64-linux-musl"
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        target,
        "-O1",
        "-static",
        "-nostdlib",
        "-ffreestanding",
        *flags,
    ]
    path = folder / name
    source = str(PROGRAMS / f"{name}.c")
    subprocess.run([*command, "-Werror", source, "-o", str(path)], check=True, cwd=folder)
    return path


def run(
    program: Path,
    cores: tuple[str, ...],
    *options: str,
    cpu: str = "max",
    more: tuple[Core, ...] = (),
) -> dict[str, Any]:
    """The plugin's report for a program on some cores and on the custom cores `more`."""
    arch = "riscv64" if program.name.endswith("rv64") else "aarch64"
    emulator = find_emulator(arch)
    out = program.parent / "out.json"
    out.unlink(missing_ok=True)
    files = []
    for core in (*map(load_core, cores), *more):
        files.append(program.parent / f"{core.name}.core")
        files[-1].write_text(core_text(core), encoding="utf-8")
    plugin = [f"file={plugin_of(emulator)}", f"out={out}", *options, *(f"core={f}" for f in files)]
    command = [emulator.path, "-cpu", cpu, "-R", hex(GUEST_BYTES), "-plugin", ",".join(plugin)]
    subprocess.run([*command, str(program)], check=True, timeout=AMPLE, env={})
    document: dict[str, Any] = json.loads(out.read_text(encoding="ascii"))
    return document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("timing")


@pytest.fixture(scope="module")
def loops(folder: Path) -> Path:
    return built(folder, "loops_a64")


@pytest.fixture(scope="module")
def laps(loops: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Laps by core and name."""
    document = run(loops, ("a53", "a72", "a76"))
    assert document["regions_seen"] == 1 and document["unknown"] == {"count": 0}
    return {
        core["name"]: dict(zip(LAPS, core["regions"][0]["laps"], strict=True))
        for core in document["cores"]
    }


@pytest.mark.parametrize(("core", "latency", "rate"), [("a53", 4, 1), ("a72", 3, 1), ("a76", 2, 2)])
def test_a_chain_takes_its_latency_and_what_is_independent_its_throughput(
    laps: Any, core: str, latency: int, rate: int
):
    assert laps[core]["chain"]["cycles"] == pytest.approx(4000 * latency, rel=0.02)
    assert laps[core]["independent"]["cycles"] == pytest.approx(4000 / rate, rel=0.2)
    assert 4000 <= laps[core]["adds"]["cycles"] < 5600
    bound = laps[core]["chain"]["bound"]
    assert bound["latency"] > 0.5 * laps[core]["chain"]["cycles"], bound


# Cycles that github.com/daniestevez/qsdr (qsdr-benchmarks/tests) measured on a Cortex-A53
PAIRS = {
    "load d": 1,
    "load q": 2,
    "load d, add 4s": 2,
    "load d, add 2s": 1,
    "add 4s, load x": 1,
    "load d, insert": 1,
    "load d, insert in its other half": 2,
    "insert, insert": 1,
    "insert, store q": 2,
    "add 4s, store q": 2,
    "load d, store d": 2,
    "load d, add 4s of it": 4,
    "load q, add 4s of it": 5,
}


def test_a_cortex_a53_issues_together_what_was_measured(folder: Path):
    document = run(built(folder, "pairs_a64"), ("a53",))
    laps = document["cores"][0]["regions"][0]["laps"]
    found = {name: lap["cycles"] / 3200 for name, lap in zip(PAIRS, laps, strict=True)}
    missed = {name for name, cycles in found.items() if abs(cycles - PAIRS[name]) > 0.3}
    # Halves of a register are one register to the model
    assert missed == {"load d, insert in its other half"}, found


@pytest.mark.parametrize("core", ["a53", "a72", "a76"])
def test_a_line_costs_more_the_farther_it_comes_from(laps: Any, core: str):
    first = laps[core]["first level"]["cycles"] / (8 * 256)
    second = laps[core]["second level"]["cycles"] / (192 * 16)
    memory = laps[core]["memory"]["cycles"] / (4 * 1024 * 16)
    assert first <= 1.15 * second and second < memory
    model = load_core(core)
    rate = 64 / memory * model.clock_mhz / 1000  # GB/s
    assert 0.5 * model.dram.core_gb_s < rate <= 1.08 * model.dram.core_gb_s
    assert laps[core]["memory"]["bound"]["dram"] > 0.5 * laps[core]["memory"]["cycles"]


@pytest.mark.parametrize("core", ["a53", "a72", "a76"])
def test_loads_that_wait_for_each_other_take_the_latency_of_their_level(laps: Any, core: str):
    near = laps[core]["chase first level"]["cycles"] / 2000
    far = laps[core]["chase memory"]["cycles"] / 2000
    assert near == pytest.approx({"a53": 3, "a72": 4, "a76": 4}[core], abs=1.2)
    assert far > near + load_core(core).l2.latency


def test_units_that_get_no_more_than_they_run_have_nothing_left_for_later(folder: Path):
    core = load_core("a72")
    units = {name: replace(unit, dispatch=0) for name, unit in core.units.items()}
    free = replace(core, name="free", units=units)
    document = run(built(folder, "dispatch_a64"), ("a72",), more=(free,))
    limited, other = (c["regions"][0]["cycles"] for c in document["cores"])
    assert limited > 1.1 * other


def test_lines_come_from_the_second_level_as_fast_as_the_road_takes_them(laps: Any):
    cycles = laps["a72"]["second level"]["cycles"] / (192 * 16)
    assert cycles == pytest.approx(load_core("a72").l2.line, rel=0.1)


def test_lines_go_to_the_second_level_as_fast_as_the_road_takes_them(folder: Path):
    core = load_core("a72")
    slow = replace(core, name="slow", l2=replace(core.l2, out=200))
    document = run(built(folder, "stores_a64"), (), more=(slow,))
    lines = 3 * 1024 * 1024 / 64
    whole = _all_laps(document["cores"][0]["regions"][0])[0]["cycles"] / lines
    assert whole == pytest.approx(200, rel=0.1)


def test_lines_that_are_in_no_row_do_not_stop_a_prefetcher_that_keeps_them_apart(folder: Path):
    core = load_core("a53")
    mixed = replace(core, name="mixed", prefetch=replace(core.prefetch, apart=0))
    document = run(built(folder, "streams_a64"), ("a53",), more=(mixed,))
    apart, together = (c["regions"][0]["cycles"] for c in document["cores"])
    assert apart < 0.8 * together


@pytest.fixture(scope="module")
def stored(folder: Path) -> dict[str, tuple[int, ...]]:
    """Cycles by core for storing 3 MiB as full lines, one word per line, and three streams."""
    document = run(built(folder, "stores_a64"), ("a53", "a55", "a76"))
    return {
        core["name"]: tuple(lap["cycles"] for lap in _all_laps(core["regions"][0]))
        for core in document["cores"]
    }


def _all_laps(region: dict[str, Any]) -> list[dict[str, Any]]:
    """The region's laps, plus the rest after the last mark."""
    rest = region["cycles"] - sum(lap["cycles"] for lap in region["laps"])
    return [*region["laps"], {"cycles": rest}]


@pytest.mark.parametrize("core", ["a53", "a55", "a76"])
def test_lines_that_are_written_whole_are_not_read_first(stored: Any, core: str):
    whole, words, _ = stored[core]
    assert words > 1.5 * whole


@pytest.mark.parametrize("core", ["a53", "a55", "a76"])
def test_whole_lines_at_several_places_cost_no_more_than_at_one(stored: Any, core: str):
    whole, _, three = stored[core]
    assert three < 1.3 * whole


def test_writes_go_no_faster_than_the_memory_takes_them(folder: Path):
    slow = replace(load_core("a53"), name="slow")
    slow = replace(slow, dram=replace(slow.dram, write_gb_s=slow.dram.gb_s / 2))
    document = run(built(folder, "stores_a64"), ("a53",), more=(slow,))
    fast, slow_one = (_all_laps(core["regions"][0])[0]["cycles"] for core in document["cores"])
    assert slow_one > 1.7 * fast
    assert slow_one == pytest.approx(
        3 * 1024 * 1024 / (slow.dram.write_gb_s * 1e9) * 1.4e9, rel=0.1
    )


@pytest.mark.parametrize("core", ["a53", "a72", "a76"])
def test_a_branch_that_nothing_predicts_costs_its_penalty_half_the_time(laps: Any, core: str):
    more = laps[core]["random"]["cycles"] - laps[core]["predictable"]["cycles"]
    penalty = load_core(core).issue.mispredict
    assert 0.35 * 2000 * penalty < more < 0.9 * 2000 * (penalty + 4)
    assert laps[core]["random"]["bound"]["branch"] > 0.5 * more


def test_every_cycle_has_one_cause_and_a_run_repeats_to_the_byte(loops: Path):
    runs = [run(loops, ("a53", "a76")) for _ in range(2)]
    assert runs[0] == runs[1]
    for core in runs[0]["cores"]:
        (region,) = core["regions"]
        assert sum(region["bound"].values()) == region["cycles"]
        assert all(sum(lap["bound"].values()) == lap["cycles"] for lap in region["laps"])
        assert sum(lap["cycles"] for lap in region["laps"]) <= region["cycles"]
        assert sum(t["instructions"] for t in region["threads"]) == runs[0]["instructions"]


def test_vectors_take_time_by_the_registers_of_a_group(folder: Path):
    program = built(folder, "loops_rv64", "-mcpu=baseline_rv64+v")
    document = run(program, ("x60",), cpu="rv64,v=true,vlen=256,vext_spec=v1.0")
    (core,) = document["cores"]
    chain, one, four, load, load4 = (lap["cycles"] for lap in core["regions"][0]["laps"])
    assert core["unknown"] == {"count": 0}
    assert chain > one / 2
    assert four == pytest.approx(4 * one, rel=0.2)
    assert load4 > 2.5 * load


def test_a_program_that_tried_an_instruction_may_go_on_in_the_handler_of_its_signal(folder):
    program = built(folder, "probe_rv64", "-mcpu=baseline_rv64")
    assert run(program, ("x60",), cpu="rv64")["regions_seen"] == 1


def test_an_instruction_that_a_core_lacks_is_named_with_its_address(folder: Path):
    document = run(built(folder, "lacking_a64"), ("a53", "a76"))
    a53, a76 = document["cores"]
    assert a53["unknown"]["count"] == 1 and a76["unknown"] == {"count": 0}
    first = a53["unknown"]["first"]
    assert first["bytes"] == "2094824e" and first["feature"] == "asimddp"
    assert int(first["address"], 16) % 4 == 0


def test_without_marks_the_whole_run_counts_with_laps_by_the_counter(folder: Path):
    document = run(built(folder, "counter_a64"), ("a53",), "entire=1", "laps=counter")
    (region,) = document["cores"][0]["regions"]
    assert document["regions_seen"] == 1
    first, second, third = (lap["instructions"] for lap in region["laps"])
    assert 180 <= second - first <= 220 and 380 <= third - second <= 420
    assert run(folder / "counter_a64", ("a53",))["regions_seen"] == 0


@pytest.mark.exhaustive
def test_two_threads_take_half_the_time_and_waiting_is_no_work(folder: Path):
    program = built(folder, "threads_a64")
    runs = [run(program, ("a72",), cpu="cortex-a72") for _ in range(2)]
    (again,), (region,) = (r["cores"][0]["regions"] for r in runs)
    assert again == region
    one, two, *_ = region["laps"]
    assert two["cycles"] == pytest.approx(one["cycles"] / 2, rel=0.05)
    _, helper = region["threads"]
    assert helper["bound"]["wait"] > 0.75 * one["cycles"]


def test_what_cores_cost_each_other_in_dram_costs_one_alone_nothing(folder: Path):
    core = load_core("a53")
    turns = replace(core, name="turns", dram=replace(core.dram, turn_ns=40))
    document = run(built(folder, "threads_memory_a64"), ("a53",), more=(turns,))
    (alone, both, *_), (same, slower, *_) = (c["regions"][0]["laps"] for c in document["cores"])
    assert same["cycles"] == pytest.approx(alone["cycles"], rel=0.01)  # the other starts later
    assert slower["cycles"] > 1.3 * both["cycles"]


def test_threads_that_meet_take_their_turns_alike_in_every_run(folder: Path):
    program = built(folder, "turns_a64")
    runs = [run(program, ("a53",), cpu="cortex-a53") for _ in range(3)]
    assert runs[1] == runs[0] and runs[2] == runs[0]
    (region,) = runs[0]["cores"][0]["regions"]
    assert len(region["threads"]) == 4
    assert all(thread["bound"]["wait"] > 0 for thread in region["threads"])
