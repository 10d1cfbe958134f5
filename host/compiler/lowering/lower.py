"""Graph → kernel calls with packed weights, then offsets: the plan that is emitted as C."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
import pkgutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from edgekit.host.common.content import release_pages
from edgekit.host.compiler import lowering as package
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.align import ALIGN, round_up
from edgekit.host.compiler.ir.types import Graph, Node
from edgekit.host.compiler.ir.views import parts_of_rows
from edgekit.host.compiler.lowering.choice import Choice
from edgekit.host.compiler.lowering.compiled import compiled_of
from edgekit.host.compiler.lowering.context import (
    Context,
    Spending,
    UnsupportedFormError,
    WeightsFile,
    lowers,
)
from edgekit.host.compiler.lowering.conv.quantized_epilogues import look_ups_of, place_look_ups
from edgekit.host.compiler.lowering.gemm.read_ahead import read_ahead
from edgekit.host.compiler.lowering.gemm.winograd_memory import keep_transformed
from edgekit.host.compiler.lowering.groups import NO_CHOICES
from edgekit.host.compiler.lowering.memory import lifetimes, plan_apart
from edgekit.host.compiler.lowering.moves import layout
from edgekit.host.compiler.lowering.nna.nna import lower_nna, lower_nna_product
from edgekit.host.compiler.lowering.nna.units import NNA
from edgekit.host.compiler.lowering.plan import (
    Alias,
    KernelCall,
    LoopCall,
    Lowered,
    MemoryPlan,
    Plan,
    StateSlot,
    Step,
    Value,
    Weights,
    base_of,
    tensors_of,
)
from edgekit.host.compiler.lowering.recurrent.loop import lower_loop
from edgekit.host.compiler.lowering.sections import Span, sections_of, side_by_side, spans_of
from edgekit.host.compiler.tables.gemm_file import board_table
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile

NO_UNITS: Mapping[str, str] = MappingProxyType({})
NO_COSTS: Mapping[str, float] = MappingProxyType({})
_PIECE_US = 0.5  # less work than this takes as long to hand to another core as to run

# Rules register when their modules are imported, so new modules need no list.
for _module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
    importlib.import_module(_module.name)


def lower(
    graph: Graph,
    board: BoardProfile,
    table: KnowledgeBase | None = None,
    subgraphs: Sequence[Sequence[str]] = (),
    units: Mapping[str, str] = NO_UNITS,
    apart: bool = False,
    costs: Mapping[str, float] = NO_COSTS,
    weights: WeightsFile | None = None,
    threads: int = 1,
    choices: Mapping[str, Choice] = NO_CHOICES,
    spending: Spending = "freely",
) -> Plan:
    """Chooses a kernel for every node, packs its weights, and places every tensor.

    - `table`: the knowledge base of methods, by default the one shipped with edgekit.
    - `subgraphs`: node names per section of the program, by default a single section.
    - `units`: the unit of each node that does not run on the cores.
    - `apart`: memory exchanged between cores is not reused, which makes the arena larger.
    - `costs`: estimated microseconds per node on one core, to avoid splitting work too finely.
    - `weights`: receives the constants, if several programs share a file.
    - `threads`: the expected number, which selects methods; the plan runs on any number.
    - `choices`: decisions for nodes whose method was chosen as a group.
    - `spending`: of memory, on weights of Winograd's transform.

    Raises InputError naming the operator if no kernel fits.
    """
    table = board_table(board) if table is None else table
    files = weights or WeightsFile()
    ctx = Context(graph, board.isa, board, table, threads, files, of_groups=choices)
    ctx.transformed = keep_transformed(ctx, spending, sum(costs.values()))
    ctx.look_ups = look_ups_of(graph, units)
    place_look_ups(ctx)
    _place_parts(ctx, units)
    _place_states(ctx)
    computed = tuple(read_ahead(ctx, _lower_nodes(ctx, units, costs)))
    buffers, copies = _assign_outputs(ctx, computed)
    steps = (*computed, *copies)
    constants = _collect_constants(ctx, steps)
    lowered = Lowered(
        name=graph.name,
        simd=board.simd,
        inputs=tuple(graph.tensors[t] for t in graph.inputs),
        outputs=tuple(graph.tensors[t] for t in graph.outputs),
        output_buffers=buffers,
        steps=steps,
        sizes=_tensor_bytes(ctx),
        aliases=dict(ctx.aliases),
        states=dict(ctx.states),
        constants=constants,
        weights=ctx.weights.bytes(),
        transformed=ctx.transformed,
    )
    state_bytes = sum(round_up(s.bytes, ALIGN) for s in lowered.states.values())
    spans = spans_of(lowered, subgraphs, units)
    memory = _plan_memory(lowered, spans, apart)
    return Plan(lowered, memory, state_bytes, sections_of(lowered, memory, spans))


def _lower_nodes(ctx: Context, units: Mapping[str, str], costs: Mapping[str, float]) -> list[Step]:
    steps = []
    inside = {name for found in ctx.look_ups.values() for name in found.nodes}
    for node in ctx.graph.nodes:
        if node.name in inside:
            continue
        rule = lowers.of(type(node.op))
        if units.get(node.name) == NNA:
            rule = lower_nna_product if isinstance(node.op, ops.MatMul) else lower_nna
        if rule is None:
            raise InputError(
                f"{ctx.graph.name}: operator {node.name} ({node.op.kind}) has no kernel; "
                f"supported operators: edgekit compile --list-operators"
            )
        before = len(ctx.scratch_bytes)
        try:
            found = rule(ctx, node)
        except UnsupportedFormError as error:
            raise ctx.unsupported(node, str(error)) from None
        calls = [_in_pieces(call, costs.get(node.name)) for call in found]
        release_pages()
        scratch = tuple(ctx.scratch_bytes)[before:]
        if not calls:
            continue
        reads = tuple(
            dict.fromkeys(i for i in node.inputs if i and ctx.graph.tensors[i].data is None)
        )
        steps.append(
            Step(
                node.name, node.op.kind, _kernel_name(calls), tuple(calls), reads, node.outputs,
                scratch, compiled_of(ctx, node, calls),
            )
        )  # fmt: skip
    return steps


@lowers(ops.Loop)
def _lower_loop(ctx: Context, node: Node) -> list[KernelCall | LoopCall]:
    return lower_loop(ctx, node, _body_steps)


def _body_steps(ctx: Context) -> list[Step]:
    """The steps of a loop's body, which are too small to have cost estimates."""
    return _lower_nodes(ctx, NO_UNITS, NO_COSTS)


def _kernel_name(calls: Sequence[KernelCall | LoopCall]) -> str:
    """The kernel name of a step in reports; convolutions precede helpers (fill, copy)."""
    kernels = [c.kernel for c in calls if isinstance(c, KernelCall)]
    if len(kernels) < len(calls):
        return "loop"
    return max(kernels, key=lambda k: k.source.startswith("conv/")).symbol


def _in_pieces(call: KernelCall | LoopCall, cost: float | None) -> KernelCall | LoopCall:
    """Splits a call that takes `cost` microseconds into pieces worth a thread each.

    The call is left unsplit if that would yield fewer than two pieces.
    """
    if isinstance(call, LoopCall) or cost is None or call.tasks is None:
        return call
    pieces = int(min(cost / _PIECE_US, call.tasks))
    grain = math.ceil(call.tasks / pieces) if pieces > 1 else call.tasks
    return dataclasses.replace(call, grain=max(call.grain, grain))


def _place_parts(ctx: Context, units: Mapping[str, str]) -> None:
    inside = {found.nodes[-1]: product for product, found in ctx.look_ups.items()}
    alone = {name for name, unit in units.items() if unit == NNA}
    ctx.parts = parts_of_rows(ctx.graph, inside, alone)
    ctx.aliases.update((n, Alias(p.whole, p.offset)) for n, p in ctx.parts.items())


def _place_states(ctx: Context) -> None:
    offset = 0
    for name, state in ctx.graph.states.items():
        size = state.initial.nbytes
        ctx.states[layout.state_buffer(name)] = StateSlot(
            offset, size, ctx.weights.add(state.initial)
        )
        offset += round_up(size, ALIGN)
    for tensor, kept in kept_in_place(ctx.graph).items():
        ctx.aliases[tensor] = Alias(layout.state_buffer(kept))


def _tensor_bytes(ctx: Context) -> dict[str, int]:
    sizes = {t.name: t.bytes for t in ctx.graph.tensors.values() if t.data is None}
    return sizes | {n: p.bytes for n, p in ctx.parts.items()} | ctx.scratch_bytes


def _assign_outputs(ctx: Context, steps: tuple[Step, ...]) -> tuple[tuple[str, ...], list[Step]]:
    """The buffer of each output, and the copies into outputs that need a separate buffer.

    Tensors written by a kernel are computed directly in the caller's memory. An output that is an
    input, a constant, or a view of another output's memory is copied at the end.
    """
    buffers, copies = [], []
    sizes = _tensor_bytes(ctx)
    written = {base_of(ctx.aliases, w).base for s in steps for w in s.writes}
    taken = {name for name in ctx.graph.outputs if name in written}
    for name in ctx.graph.outputs:
        base = base_of(ctx.aliases, name)
        is_entire = base.offset == 0 and sizes.get(base.base) == sizes.get(name)
        if name in written or (base.base in written and is_entire and base.base not in taken):
            taken.add(base.base)
            buffers.append(base.base)
            continue
        buffer = f"{name}:out"
        call = layout.copy_bytes(
            ctx, ctx.tensor(name).bytes, Value(base.base, base.offset), Value(buffer)
        )
        copies.append(Step(buffer, "copy", call.kernel.symbol, (call,), (base.base,), (buffer,)))
        buffers.append(buffer)
    return tuple(buffers), copies


def _collect_constants(ctx: Context, steps: Iterable[Step]) -> dict[str, Weights]:
    """Constants that kernels read as ordinary operands."""
    found: dict[str, Weights] = {}
    for step in steps:
        for value in tensors_of(step.calls):
            base = base_of(ctx.aliases, value.tensor).base
            tensor = ctx.graph.tensors.get(base)
            if tensor is not None and tensor.data is not None:
                found[base] = ctx.weights.add(tensor.data)
    return found


def _plan_memory(lowered: Lowered, spans: Sequence[Span], apart: bool) -> MemoryPlan:
    """Places all tensors other than inputs, outputs, constants and states.

    Steps that may run concurrently on different units must not reuse each other's memory, or they
    would be serialized.
    """
    elsewhere = {t.name for t in lowered.inputs} | set(lowered.constants) | set(lowered.states)
    elsewhere |= set(lowered.output_buffers)
    uses = []
    for step in lowered.steps:
        names = (*step.reads, *step.writes, *step.scratch)
        bases = dict.fromkeys(base_of(lowered.aliases, n).base for n in names)
        uses.append([b for b in bases if b not in elsewhere])
    shared = _handed_over(uses, spans) if apart else set()
    for span in spans:
        if span.is_shared:
            mine = uses[span.first : span.last]
            for at, others in enumerate(side_by_side(lowered, span), span.first):
                together = itertools.chain(*(mine[other] for other in others))
                uses[at] = list(dict.fromkeys(together))
    return plan_apart(lifetimes(lowered.sizes, uses), shared, len(uses))


def _handed_over(uses: Sequence[Sequence[str]], spans: Sequence[Span]) -> set[str]:
    """Buffers touched by several kinds of cores.

    A core that writes what another core has read waits for that core's cache: 5 to 20 times as long
    as for its own on Zen 4. If memory were reused, this would affect half of all tensors.
    """
    touched: dict[str, set[str]] = {}
    for span in spans:
        for at, unit in enumerate(span.units, span.first):
            for name in uses[at] if unit != NNA else ():
                touched.setdefault(name, set()).add(unit)
    return {name for name, units in touched.items() if len(units) > 1}


def kept_in_place(graph: Graph) -> dict[str, str]:
    """Maps tensors that can share a state's memory to that state: as read, and after the scatter.

    The state must be read once, only by the scatter, and written once; no view of it may be an
    output.
    """
    found: dict[str, str] = {}
    producer, users = graph.producer(), graph.consumers()
    touched = Counter(
        n.op.state for n in graph.nodes if isinstance(n.op, ops.ReadState | ops.WriteState)
    )
    for node in graph.nodes:
        if not isinstance(node.op, ops.WriteState) or touched[node.op.state] != 2:
            continue
        scatter = _behind_views(producer, node.inputs[0])
        if scatter is None or not isinstance(scatter.op, ops.Scatter):
            continue
        read = _behind_views(producer, scatter.inputs[0])
        if read is None or not isinstance(read.op, ops.ReadState):
            continue
        before, after = (_find_views(users, n.outputs[0]) for n in (read, scatter))
        readers = [n for name in before for n in users[name] if not isinstance(n.op, ops.Reshape)]
        if read.op.state != node.op.state or readers != [scatter]:
            continue
        if not {*before} & {*scatter.inputs[1:]} and not {*before, *after} & {*graph.outputs}:
            found |= dict.fromkeys((*read.outputs, *scatter.outputs), node.op.state)
    return found


def _behind_views(producer: Mapping[str, Node], name: str | None) -> Node | None:
    """The node that produced the memory that `name` is a view of."""
    node = None if name is None else producer.get(name)
    while node is not None and isinstance(node.op, ops.Reshape):
        node = producer.get(node.inputs[0] or "")
    return node


def _find_views(users: Mapping[str, Sequence[Node]], name: str) -> list[str]:
    """`name` and all views of its memory."""
    found = [name]
    for each in found:
        found += [n.outputs[0] for n in users[each] if isinstance(n.op, ops.Reshape)]
    return found
