"""The journey of a model: import → passes → lower → C → library, weights, golden vectors."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edgekit.host.build.artifact import Artifact
from edgekit.host.build.golden import golden_of
from edgekit.host.build.kernels import features_unit
from edgekit.host.build.toolchain import Toolchain, Unit, kernels_folder
from edgekit.host.codegen.emit import describe, emit, kernels_of, parts_of
from edgekit.host.errors import InputError
from edgekit.host.explain import explain
from edgekit.host.importers import Shapes, import_model
from edgekit.host.lower.lower import lower
from edgekit.host.lower.plan import Plan
from edgekit.host.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.passes.pipeline import run_passes
from edgekit.host.passes.quantized import integer_form
from edgekit.host.paths import cache_folder
from edgekit.host.schedule.schedule import schedule
from edgekit.host.split import memory_limit, split
from edgekit.host.tune.tables import table_of
from edgekit.kb.board import BoardProfile


def compile_artifact(
    model: Path,
    board: BoardProfile,
    cache: Path | None = None,
    options: CompileOptions = DEFAULT_OPTIONS,
) -> Artifact:
    """Builds `model` for `board`; `cache` defaults to the user's cache folder.

    Raises InputError for a model that cannot be read or does not fit the board, BuildError if the
    compiler fails.
    """
    cache = cache or cache_folder()
    imported = integer_form(import_model(model, options.shapes))
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    graph, counts = run_passes(imported)
    limit = memory_limit(board, options)
    divided = split(graph, limit)
    scheduled = schedule(divided.graph, board, options)
    plan = lower(scheduled.graph, board, table_of(board))
    _check_memory(plan, board, limit)
    library = Toolchain(board, cache / "objects").build(units_of(plan, board))
    return Artifact(
        model_name=model.stem,
        model_sha256=digest,
        library=library,
        weights=plan.lowered.weights,
        description=describe(plan),
        golden=golden_of(imported, _golden_key(digest, options.shapes), cache / "golden"),
        explain=explain(scheduled, plan, board, counts, divided.origin, limit),
    )


def _golden_key(digest: str, shapes: Shapes) -> str:
    """What golden outputs are kept by: one model has others with other shapes of its inputs."""
    if not shapes:
        return digest
    return hashlib.sha256(f"{digest} {sorted(shapes.items())}".encode()).hexdigest()


def units_of(plan: Plan, board: BoardProfile) -> list[Unit]:
    """Every C file of the model's library: its run(), its kernels, the runtime."""
    folder = kernels_folder()
    simd = ("EK_SIMD", f'"simd/{board.simd}.h"')
    units = [Unit("run", emit(plan))]
    units += [
        Unit(k.symbol, folder / k.source, (("NAME", k.symbol), simd, *k.macros))
        for k in (*kernels_of(plan), *parts_of(plan))
    ]
    units.append(features_unit(board))
    units += [Unit(name, folder / f"runtime/{name}.c") for name in ("bench", "pool")]
    return units


def _check_memory(plan: Plan, board: BoardProfile, limit: int | None) -> None:
    name, working = plan.lowered.name, plan.memory.arena_bytes + plan.state_bytes
    if limit is not None and working > limit:
        raise InputError(
            f"{name}: expected an arena of at most {limit} bytes, found {working}; raise "
            "--memory-limit, or choose a smaller model or a larger board"
        )
    need = working + len(plan.lowered.weights)
    if board.memory_bytes and need > board.memory_bytes:
        raise InputError(
            f"{name}: expected at most {board.memory_bytes} bytes of arena and "
            f"weights on {board.name}, found {need}; choose a smaller model or a larger board"
        )
