"""Several compute units in parallel: the queues of runtime/units.c, alone and in models."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.codegen.section import section_code
from edgekit.host.compiler.driver import units_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation
from edgekit.host.compiler.lowering.lower import lower
from edgekit.host.compiler.lowering.plan import base_of
from edgekit.host.compiler.toolchain.zig import Toolchain, kernels_folder
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, check, run_here
from tests.support.sanitized import (
    BOARDS,
    RACES,
    build_driver,
    build_library,
    compile_with,
    run,
    usable,
)
from tests.support.unit_graphs import branchy_graph, random_units

_DRIVER = Path(__file__).with_name("units_driver.c")
_INPUT = np.random.default_rng(1).normal(size=(1, 5, 7, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that runs random queues without a model."""
    program = str(tmp_path_factory.mktemp("units") / "driver")
    runtime = kernels_folder() / "runtime"
    sources = [str(path) for path in (_DRIVER, runtime / "units.c", runtime / "thread_pool.c")]
    compile_with(RACES, [*sources, "-o", program, "-lpthread"])
    return program


@pytest.mark.sanitizers
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_no_step_starts_before_what_it_waits_for(queues, threads):
    run(queues, "0", "200", str(threads))


@pytest.mark.long
@pytest.mark.sanitizers
@pytest.mark.parametrize("threads", [2, 4])
def test_many_timelines(queues, threads):
    run(queues, "1000", "100000", str(threads))


@pytest.mark.parametrize("seed", range(4))
def test_units_change_nothing(seed, tmp_path):
    graph = branchy_graph(40, seed)
    folder = build(graph, load_board("local"), tmp_path, *random_units(graph, seed))
    for threads in (1, 2, 3):
        check(graph, run_here(folder, {"x": _INPUT}, threads), {"x": _INPUT})


def test_a_shared_subgraph_keeps_what_its_units_need_apart():
    """Two chains of one input need less memory one after the other than in parallel."""
    graph = branchy_graph(40, 2)
    names = [node.name for node in graph.nodes]
    board = load_board("local")
    units = dict.fromkeys(names[::2], "little")
    together = lower(graph, board, None, [names], units)
    assert together.memory.arena_bytes > lower(graph, board).memory.arena_bytes
    (section,) = together.sections
    assert [len(queue) for queue in section.queues] == [20, 20]
    waits = [w for queue in section.queues for w in queue if any(w.after)]
    assert 0 < len(waits) < 40


def test_what_units_hand_over_has_memory_of_its_own():
    """Buffers shared between units never overlap buffers that only one unit uses."""
    graph = branchy_graph(40, 2)
    names = [node.name for node in graph.nodes]
    units = dict.fromkeys(names[::2], "little")
    plan = lower(graph, load_board("local"), None, [names], units, apart=True)
    touched: dict[str, set[str]] = {}
    for step in plan.lowered.steps:
        for name in (*step.reads, *step.writes, *step.scratch):
            base = base_of(plan.lowered.aliases, name).base
            touched.setdefault(base, set()).add(units.get(step.name, "cpu"))
    places = [(at, at + plan.lowered.sizes[n], n) for n, at in plan.memory.offsets.items()]
    handed = [place for place in places if len(touched[place[2]]) > 1]
    kept = [place for place in places if len(touched[place[2]]) == 1]
    assert handed and kept
    assert max(end for _, end, _ in kept) <= min(start for start, _, _ in handed)


@pytest.mark.sanitizers
@pytest.mark.parametrize("seed", range(2))
def test_models_on_units_have_no_races(seed, tmp_path):
    board = BOARDS[usable("sse2")]
    graph = branchy_graph(40, seed)
    plan = lower(graph, board, None, *random_units(graph, seed))
    library = build_library(units_of(plan, board), board.simd, tmp_path, RACES)
    driver = build_driver(tmp_path / "driver", RACES)
    (tmp_path / "weights.bin").write_bytes(plan.lowered.weights)
    calls = 50
    (tmp_path / "in.bin").write_bytes(_INPUT.tobytes() * calls)
    run(
        *(str(p) for p in (driver, library, tmp_path / "weights.bin")),
        *(str(plan.memory.arena_bytes), "0", "1", str(calls)),
        *(str(tmp_path / "in.bin"), str(tmp_path / "out.bin"), "2"),
        str(_INPUT.nbytes),
        ",".join([str(_INPUT.nbytes)] * len(graph.outputs)),
    )
    rows = np.fromfile(tmp_path / "out.bin", np.float32).reshape(calls, -1)
    np.testing.assert_array_equal(rows, np.broadcast_to(rows[0], rows.shape))
    first = rows[0].reshape(len(graph.outputs), *_INPUT.shape)
    check(graph, dict(zip(graph.outputs, first, strict=True)), {"x": _INPUT})


def test_a_changed_layer_compiles_one_subgraph_anew(tmp_path):
    graph = branchy_graph(40, 7)
    names = [node.name for node in graph.nodes]
    subgraphs = [names[:10], names[10:20], names[20:30], names[30:]]
    board = load_board("local")
    compiled: list[str] = []

    def recorded(command, env, seconds):
        """Records the C file instead of compiling it."""
        if "-c" in command:
            compiled.append(Path(command[command.index("-c") + 1]).stem)
        Path(command[command.index("-o") + 1]).write_text("made")
        return subprocess.CompletedProcess(command, 0, "", "")

    def build_it(changed) -> list[str]:
        compiled.clear()
        plan = lower(changed, board, None, subgraphs)
        assert len({section_code(plan, s).symbol for s in plan.sections}) == 4
        Toolchain(board, tmp_path, run=recorded).build(units_of(plan, board))
        return list(compiled)

    build_it(graph)
    node = next(n for n in graph.nodes if n.name in subgraphs[1] and n.op.kind == "clamp")
    other = dataclasses.replace(node, op=ops.Clamp(Activation.RELU_N1_TO_1))
    nodes = tuple(other if n is node else n for n in graph.nodes)
    again = build_it(dataclasses.replace(graph, nodes=nodes))
    # run.c names the new subgraph; the clamp kernel is unchanged. Sorted: builds run in parallel.
    assert sorted(re.sub("_[0-9a-f]{16}", "", what) for what in again) == ["ek_subgraph", "run"]
    assert build_it(graph) == []
