"""What a board's kernels compute at each operator: a release with more outputs.

The plan is that of the release, with a copy of each operator's result into an output of its own:
the same kernels with the same arguments, in the same arena.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from edgekit.device.runtime.agent.manifest import LIBRARY, WEIGHTS, Manifest
from edgekit.device.runtime.agent.specs import OperatorSpec, TensorSpec
from edgekit.device.runtime.record import replace
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.driver import units_of
from edgekit.host.compiler.ir.types import Array, Graph, Tensor
from edgekit.host.compiler.lowering.context import Context, WeightsFile
from edgekit.host.compiler.lowering.conv.quantized_epilogues import look_ups_of
from edgekit.host.compiler.lowering.moves.layout import copy_bytes
from edgekit.host.compiler.lowering.plan import Lowered, Plan, Section, Step, Value, base_of
from edgekit.host.compiler.schedule.types import Schedule
from edgekit.host.compiler.tables.gemm_file import board_table
from edgekit.host.compiler.toolchain.zig import Toolchain
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.lab.compare.here import run_here
from edgekit.host.simulator.model import run_model
from edgekit.host.simulator.target import SimulatedCore
from edgekit.kb.targets.board import BoardProfile

_MOST_TENSORS = 400  # copied in one run
_MOST_BYTES = 128 << 20


@dataclasses.dataclass(frozen=True)
class _Tap:
    """A tensor that step number `step` writes; `size`: the bytes from its first value to its
    last."""

    step: int
    tensor: Tensor
    size: int

    def values(self, raw: bytes) -> Array:
        """The values, whose rows may be parts of a wider tensor's."""
        kind, shape = np.dtype(self.tensor.dtype.numpy), self.tensor.shape
        if self.size == self.tensor.bytes:
            return np.frombuffer(raw, kind).reshape(shape)
        row = shape[-1] * kind.itemsize
        rows = self.tensor.elements // shape[-1]
        pitch = (self.size - row) // max(rows - 1, 1)
        parts = [raw[at : at + row] for at in range(0, rows * pitch, pitch or 1)][:rows]
        return np.frombuffer(b"".join(parts), kind).reshape(shape)


def board_tensors(
    scheduled: Schedule,
    plan: Plan,
    board: BoardProfile,
    bundle: Bundle,
    inputs: Sequence[Array],
    target: SimulatedCore | None,
    seconds: float,
) -> dict[str, Array]:
    """The tensors that the operators of `plan` write on the board's core, by name, with their
    stored values. `bundle` is the release; `inputs` are in its order; `target` is None if the board
    is this machine."""
    graph = scheduled.graph
    found: dict[str, Array] = {}
    given = b"".join(np.ascontiguousarray(x).tobytes() for x in inputs)
    for taps in _groups(_taps(scheduled, plan.lowered)):
        watched = _watched_plan(graph, plan, board, taps)
        library = Toolchain(board, cache_folder() / "objects").build(units_of(watched, board))
        manifest = _watched_manifest(bundle.manifest, watched.lowered, taps)
        files = {LIBRARY: library, WEIGHTS: watched.lowered.weights}
        if target is None:
            raw = run_here(manifest, files, given)
        else:
            _, raw = run_model(manifest, files, given, target, seconds=seconds)
        at = sum(spec.bytes for spec in bundle.manifest.outputs)
        for tap in taps:
            found[tap.tensor.name] = tap.values(raw[at : at + tap.size])
            at += tap.size
    return found


def _taps(scheduled: Schedule, lowered: Lowered) -> Iterator[_Tap]:
    """A product with a fused function writes only the function's result."""
    graph = scheduled.graph
    fused = {name: found.out for name, found in look_ups_of(graph, scheduled.units).items()}
    for number, step in enumerate(lowered.steps):
        for name in (fused[step.name],) if step.name in fused else step.writes:
            tensor = graph.tensors.get(name)
            if tensor is not None and tensor.elements:
                yield _Tap(number, tensor, lowered.sizes.get(name, tensor.bytes))


def _groups(taps: Iterator[_Tap]) -> Iterator[list[_Tap]]:
    """As many tensors as one run may copy."""
    group: list[_Tap] = []
    for tap in taps:
        size = tap.size + sum(each.size for each in group)
        if group and (len(group) == _MOST_TENSORS or size > _MOST_BYTES):
            yield group
            group = []
        group.append(tap)
    if group:
        yield group


def _watched_plan(graph: Graph, plan: Plan, board: BoardProfile, taps: Sequence[_Tap]) -> Plan:
    """The plan with copies after the steps, which run one after the other."""
    lowered = plan.lowered
    ctx = Context(graph, board.isa, board, board_table(board), 1, WeightsFile())
    steps: list[Step] = []
    by_step = {n: [*group] for n, group in itertools.groupby(taps, key=lambda tap: tap.step)}
    buffers = {tap.tensor.name: f"{tap.tensor.name}:watched" for tap in taps}
    for number, step in enumerate(lowered.steps):
        steps.append(step)
        for tap in by_step.get(number, ()):
            base = base_of(lowered.aliases, tap.tensor.name)
            buffer = buffers[tap.tensor.name]
            call = copy_bytes(ctx, tap.size, Value(base.base, base.offset), Value(buffer))
            reads, writes = (base.base,), (buffer,)
            steps.append(Step(buffer, "copy", call.kernel.symbol, (call,), reads, writes))
    more = dataclasses.replace(
        lowered,
        outputs=(*lowered.outputs, *(tap.tensor for tap in taps)),
        output_buffers=(*lowered.output_buffers, *buffers.values()),
        steps=tuple(steps),
    )
    return dataclasses.replace(plan, lowered=more, sections=(Section(0, len(steps)),))


def _watched_manifest(manifest: Manifest, lowered: Lowered, taps: Sequence[_Tap]) -> Manifest:
    outputs = (TensorSpec(tap.tensor.name, "u8", (tap.size,), None, None) for tap in taps)
    operators = tuple(OperatorSpec(s.name, s.op, s.kernel) for s in lowered.steps)
    return replace(manifest, outputs=(*manifest.outputs, *outputs), operators=operators)
