"""Compiles a model: import → passes → lower → C → library, weights, golden vectors."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from edgekit.device.runtime.agent.shadow_spec import ShadowSpec
from edgekit.device.runtime.agent.specs import BoardMemory, memory_of
from edgekit.device.runtime.agent.variants import shapes_text
from edgekit.device.runtime.features import memory_bytes
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.artifact import Artifact, FloatArtifact
from edgekit.host.compiler.codegen.emit import describe, emit, kernels_of, parts_of
from edgekit.host.compiler.codegen.section import section_code
from edgekit.host.compiler.explain import explain
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.frontends import (
    model_hash,
    signatures_of,
)
from edgekit.host.compiler.golden.half import code_note, half_note, loss_of, worse
from edgekit.host.compiler.golden.vectors import golden_of
from edgekit.host.compiler.inputs import read_loss
from edgekit.host.compiler.ir.types import Array, Graph
from edgekit.host.compiler.language_samples import fit_to_text, fits_to_text, reads_tokens
from edgekit.host.compiler.lowering.context import WeightsFile
from edgekit.host.compiler.lowering.gemm.winograd_memory import winograd_note
from edgekit.host.compiler.lowering.groups import choices_of
from edgekit.host.compiler.lowering.plan import Kernel, Plan
from edgekit.host.compiler.options import DEFAULT_OPTIONS, CompileOptions
from edgekit.host.compiler.pipeline import PreparedGraph, fixed_thresholds, run_pipeline, target_of
from edgekit.host.compiler.placement import check_placement, explained, operator_costs, placements
from edgekit.host.compiler.schedule.types import Schedule
from edgekit.host.compiler.shadow import FloatTwin, check_same_states, float_graph, float_twin
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.compiler.tasks import import_for_task, variants_of, with_chunks, with_task
from edgekit.host.compiler.tasks.page import joined
from edgekit.host.compiler.toolchain.kernels import features_unit, shadow_unit
from edgekit.host.compiler.toolchain.zig import Toolchain, TranslationUnit, kernels_folder
from edgekit.host.compiler.transforms.quantize import quantized_file, samples_of
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile

_LOG = logging.getLogger(__name__)
_FILES = 64  # maximum files for sections
# Macros of kernels that use f16 conversion instructions if available
_CONVERT = {"FROM_F16", "TO_F16"}


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
    first = variants_of(model, replace(options, more_shapes=()))[:1]
    return _compile_each(model, board, cache, options, first)[0]


def compile_variants(
    model: Path,
    board: BoardProfile,
    cache: Path | None = None,
    options: CompileOptions = DEFAULT_OPTIONS,
) -> tuple[Artifact, ...]:
    """Compiles a model as `compile_artifact` does, for all signatures and shapes requested in
    `options`; a language model also for chunks of prompts.

    Constants shared by variants are stored once: only the last variant has weights, which are
    those of all.
    """
    in_chunks = with_chunks(model, options)
    try:
        return _compile_each(model, board, cache, options, variants_of(model, in_chunks))
    except InputError as error:
        if in_chunks is options:
            raise
        note = f"prompts are read token by token: {error}"
    (made,) = _compile_each(model, board, cache, options, variants_of(model, options))
    return (replace(made, notes=(*made.notes, note)),)


def _compile_each(
    model: Path,
    board: BoardProfile,
    cache: Path | None,
    options: CompileOptions,
    every: Sequence[CompileOptions],
) -> tuple[Artifact, ...]:
    check_placement(board, options.threads, options.cluster)
    digest, known = model_hash(model), signatures_of(model)
    weights, made = WeightsFile(), list[Artifact]()
    if options.repeats_every and len(every) > 1:
        raise InputError(
            f"{model}: expected one signature and one shape of each input with --shadow or "
            f"--field-ranges, found {len(every)}; compile without them"
        )
    fits = fits_to_text(model, options)
    fitted = fit_to_text(model, board, options, cache) if fits else None
    for each in every:
        with _naming_variant(each) if len(every) > 1 else nullcontext():
            prepared = prepare(model, board, each, cache, fitted)
            made = [replace(one, weights=b"") for one in made]  # so that theirs is not copied
            floats = float_graph(prepared, model, each) if each.repeats_every else None
            made.append(build_graph(prepared, digest, board, cache, each, weights))
            if floats is not None:
                weights.end_variant()
                twin = float_twin(floats, prepared, made[0].golden.inputs, each)
                shadow = build_shadow(twin, prepared, model, board, each, cache, weights)
                size = len(shadow.library) + len(shadow.weights) - len(made[0].weights)
                note = f"the float model for --shadow adds {size} bytes to the release"
                notes = (*made[0].notes, note)
                made[0] = replace(made[0], weights=b"", notes=notes, shadow=shadow)
        weights.end_variant()
    if len(known) > 1 and not options.signatures:
        note = f"signatures {', '.join(known)}; --signature compiles some of them"
        made[0] = replace(made[0], notes=(note, *made[0].notes))
    return tuple(made) if options.recognizer is None else joined(made)


@contextmanager
def _naming_variant(options: CompileOptions) -> Iterator[None]:
    """Adds the variant's signature and shapes to errors."""
    try:
        yield
    except InputError as error:
        shapes, name = shapes_text(options.shapes), options.signature
        where = f"with {shapes}" if shapes else ""
        if name:
            where = f"signature {name}{where and f' {where}'}; --signature compiles others alone"
        raise InputError(f"{error} ({where})") from error


def prepare(
    model: Path,
    board: BoardProfile,
    options: CompileOptions = DEFAULT_OPTIONS,
    cache: Path | None = None,
    fitted: PreparedGraph | None = None,
) -> PreparedGraph:
    """Imports a model, quantizes it if requested, and runs all passes before scheduling. `fitted`:
    as `fit_to_text` gives it, if another variant needed it, too."""
    graph = import_for_task(model, options)
    names, lost = graph.output_names, read_loss(model)
    samples: Sequence[Mapping[str, Array]] = ()
    base: Graph | None = None
    base_names: dict[str, str] = {}
    if fits_to_text(model, options):
        fitted = fitted or fit_to_text(model, board, options, cache)
    elif options.samples is not None and options.quantizes:
        quantized = quantized_file(model, graph, options.samples, board)
        graph, lost = quantized.graph, quantized.report.loss
        base = quantized.base
        base_names = {other: name for name, other in quantized.tensors.items()}
    elif options.samples is not None:
        samples = samples_of(model, graph, options.samples)
    found = with_task(model, replace(graph, output_names=names), options)
    made = prepare_graph(found.graph, board, options, None, samples, cache, fitted)
    return replace(
        made, lost=lost, task=found.task, files=found.files, base=base, base_names=base_names
    )


def prepare_graph(
    source: Graph,
    board: BoardProfile,
    options: CompileOptions = DEFAULT_OPTIONS,
    table: KnowledgeBase | None = None,
    samples: Sequence[Mapping[str, Array]] = (),
    cache: Path | None = None,
    fitted: PreparedGraph | None = None,
) -> PreparedGraph:
    """`prepare` for an imported graph.

    Methods come from `table`, by default the board's. Low-bit weights are fitted to `samples`,
    which map input names to values, or are those of `fitted`.
    """
    target = target_of(board, options, table, cache)
    if fitted is None:
        return run_pipeline(source, replace(target, samples=samples))
    made = run_pipeline(source, replace(target, fitted=fitted.graph))
    return replace(made, notes=(*made.notes, *fitted.notes), splits=fitted.splits)


def build_graph(
    made: PreparedGraph,
    digest: str,
    board: BoardProfile,
    cache: Path | None = None,
    options: CompileOptions = DEFAULT_OPTIONS,
    weights: WeightsFile | None = None,
    table: KnowledgeBase | None = None,
) -> Artifact:
    """Builds the library of a graph; `digest` is the SHA-256 of its model.

    Constants are appended to `weights`, if given. Methods come from `table`, by default the
    board's, for the number of threads in the options, or else the number chosen by the cost model.
    """
    cache, imported = cache or cache_folder(), made.imported
    scheduled, plan = plan_graph(made, board, options, weights, table)
    check_memory(plan, board, made.limit)
    units = units_of(plan, board)
    if made.task is not None and not made.task.tokenizer:
        units.append(TranslationUnit("picture", kernels_folder() / "runtime/picture.c"))
    library = Toolchain(board, cache / "objects").build(units)
    _LOG.info("%s: compiled; computing the reference outputs", imported.name)
    golden = golden_of(imported, cache / "golden")
    placed = placements(scheduled, plan, board, options.threads, options.cluster)
    spent = winograd_note(scheduled.graph, plan.lowered.transformed)
    notes, plain = (*made.notes, *filter(None, [spent])), made.floats or made.exact
    loss = None if plain is None or reads_tokens(imported) else loss_of(plain, imported, golden)
    if made.floats is not None and (loss or options.samples is None):
        notes = (*notes, code_note(made.graph, loss))
    if made.floats is not None and loss is not None:
        notes = (*notes, *fixed_thresholds(made, golden.inputs))
    if loss is not None and made.exact is not None:
        notes = (*notes, half_note(made.exact, made.graph, golden, loss))
    return Artifact(
        model_name=imported.name,
        model_sha256=digest,
        library=library,
        weights=plan.lowered.weights,
        description=describe(plan),
        golden=golden,
        explain=explain(
            scheduled,
            plan,
            board,
            made.counts,
            made.origin,
            made.limit,
            operator_costs(scheduled, plan, board, placed),
            explained(placed),
            made.splits,
            made.sparse,
        ),
        notes=notes,
        placements=placed,
        extras=extras_of(plan, board),
        loss=worse(made.lost, loss),
        signature=options.signature,
        task=made.task,
        files=made.files,
    )


def build_shadow(
    twin: FloatTwin,
    released: PreparedGraph,
    model: Path,
    board: BoardProfile,
    options: CompileOptions,
    cache: Path | None,
    weights: WeightsFile,
) -> FloatArtifact:
    """Builds the float model that repeats inferences of `released` on a board; `weights` have those
    of the quantized model."""
    floats, cache = options.in_float, cache or cache_folder()
    made = prepare_graph(twin.graph, board, floats, cache=cache)
    check_same_states(options.float_model or model, made.graph, released.graph)
    _, plan = plan_graph(made, board, floats, weights)
    check_memory(plan, board, None)
    units = [*units_of(plan, board), shadow_unit()]
    memory = memory_of({k: describe(plan)[k] for k in BoardMemory.field_names}, "memory")
    spec = ShadowSpec(
        "float/model.so",
        memory,
        options.repeats_every,
        twin.measure,
        model_hash(options.float_model or model),
        twin.watched,
    )
    library = Toolchain(board, cache / "objects").build(units)
    return FloatArtifact(library, plan.lowered.weights, extras_of(plan, board), spec)


def plan_graph(
    made: PreparedGraph,
    board: BoardProfile,
    options: CompileOptions = DEFAULT_OPTIONS,
    weights: WeightsFile | None = None,
    table: KnowledgeBase | None = None,
) -> tuple[Schedule, Plan]:
    """The order and the kernel calls with which `build_graph` builds a graph."""
    name, count = made.imported.name, len(made.graph.nodes)
    _LOG.info("%s: planning %d operators for %s", name, count, board.name)
    table = table_of(board) if table is None else table
    threads = _likely_threads(made.graph, board, options, table)
    choices = choices_of(made.groups)
    scheduled, plan = plan_of(made.graph, board, options, weights, table, threads, choices)
    return scheduled, _with_names(plan, made.output_names)


def _with_names(plan: Plan, names: Mapping[str, str]) -> Plan:
    """The plan with outputs called as the model calls them."""
    if not names:
        return plan
    outputs = tuple(replace(t, name=names.get(t.name, t.name)) for t in plan.lowered.outputs)
    return replace(plan, lowered=replace(plan.lowered, outputs=outputs))


def _likely_threads(
    graph: Graph, board: BoardProfile, options: CompileOptions, table: KnowledgeBase
) -> int:
    """The number of threads to plan for. A first plan is needed only if the table has
    thread-specific methods."""
    if options.threads or not table.knows_threads:
        return options.threads or 1
    weights = WeightsFile(kept=False)  # another copy of a large model's would be in the way
    scheduled, plan = plan_of(graph, board, options, weights, table, threads=1)
    found = placements(scheduled, plan, board, cluster=options.cluster)
    return found[0].threads if found else 1


def units_of(plan: Plan, board: BoardProfile) -> list[TranslationUnit]:
    """All C files of the model's library: run(), its sections, its kernels, the runtime."""
    folder = kernels_folder()
    simd = ("EK_SIMD", f'"simd/{board.simd}.h"')
    code = [section_code(plan, section) for section in plan.sections]
    units = [TranslationUnit("run", emit(plan, code))]
    units += _section_units({made.symbol: made.text for made in code})
    extras = extras_of(plan, board)
    for k in (*kernels_of(plan), *parts_of(plan)):
        macros = (("NAME", k.symbol), *_override_macros(simd, k.macros))
        own = extras if _of_half(k, board) or _CONVERT & {*dict(k.macros)} else ()
        units.append(TranslationUnit(k.symbol, folder / k.source, macros, extras=own))
    units.append(features_unit(board, extras))
    runtime = ["bench", "thread_pool"]
    if any(section.queues for section in plan.sections):
        runtime.append("units")
    units += [TranslationUnit(name, folder / f"runtime/{name}.c") for name in runtime]
    return units


def extras_of(plan: Plan, board: BoardProfile) -> tuple[str, ...]:
    """The features of `board.extras` that the model's code uses."""
    halves = any(_of_half(k, board) for k in (*kernels_of(plan), *parts_of(plan)))
    used = {board.isa.i8_feature, *((board.isa.half_feature,) if halves else ())}
    return tuple(each for each in board.extras if each in used)


def _of_half(kernel: Kernel, board: BoardProfile) -> bool:
    return ("EK_SIMD", f'"simd/{board.isa.half}.h"') in kernel.macros


def _override_macros(
    simd: tuple[str, str], macros: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """The macros of a kernel, which may override the board's vector header."""
    return macros if any(name == simd[0] for name, _ in macros) else (simd, *macros)


def check_memory(plan: Plan, board: BoardProfile, limit: int | None) -> None:
    """Raises `InputError` if the model exceeds the memory of the board or `limit`.

    A board of unknown memory is assumed to have no more than this machine, which has to compute the
    golden outputs.
    """
    name, working = plan.lowered.name, plan.memory.arena_bytes + plan.state_bytes
    need = working + len(plan.lowered.weights)
    have = board.memory_bytes or memory_bytes().total
    if have and need > have:
        raise InputError(
            f"{name}: expected at most {have} bytes of arena and "
            f"weights on {board.name}, found {need}; choose a smaller model or a larger board"
        )
    if limit is not None and working > limit:
        raise InputError(
            f"{name}: expected an arena of at most {limit} bytes, found {working}; raise "
            "--memory-limit, or choose a smaller model or a larger board"
        )


def _section_units(texts: Mapping[str, str]) -> list[TranslationUnit]:
    """One file per section, so that unchanged sections are found in the cache.

    Beyond `_FILES` sections several share a file, since starting a compiler takes longer than
    compiling a section.
    """
    alone = {s: t for s, t in texts.items() if "\nstatic " in t or len(texts) <= _FILES}
    together = [(s, t) for s, t in texts.items() if s not in alone]
    units = [TranslationUnit(symbol, text, (("NAME", symbol),)) for symbol, text in alone.items()]
    size = -(-len(texts) // _FILES)
    for first in range(0, len(together), size):
        some = together[first : first + size]
        text = "".join(f"#define NAME {s}\n{t}#undef NAME\n" for s, t in some)
        units.append(TranslationUnit(some[0][0], text))
    return units
