"""Loss of golden outputs by reduced precision, relative to the f32 model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from edgekit.device.runtime.agent.specs import LossSpec
from edgekit.host.compiler.artifact import Golden
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.similarity import cosine, least_cosine
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node

_NONE = 1e-30
_MOST_OFF = 1e9  # reported for non-finite outputs


def half_loss(
    exact: Graph, made: Graph, inputs: Iterable[Mapping[str, Array]], limit: float
) -> float:
    """Loss of `made`, in half precision, against `exact`, the same model in f32: the largest error
    of an output relative to its largest value, for the first of `inputs` that exceeds `limit`, or
    else for the worst."""
    worst = 0.0
    for each in inputs:
        with np.errstate(all="ignore"):
            want, found = (evaluate(graph, each).outputs for graph in (exact, made))
        pairs = zip(exact.outputs, made.outputs, strict=True)
        errors = (_max_relative_error(want[a], found[b]) for a, b in pairs)
        worst = max(worst, *errors, 0.0)
        if worst > limit:
            break
    return worst


def overflows(exact: Graph, golden: Golden) -> bool:
    """Whether half-precision golden outputs are non-finite where those of `exact` are finite."""
    if all(bool(np.all(np.isfinite(y))) for y in golden.outputs):
        return False
    pairs = _output_pairs(exact, golden)
    return any(bool(np.any(np.isfinite(want) & ~np.isfinite(found))) for want, found in pairs)


def loss_of(exact: Graph, golden: Golden) -> LossSpec:
    """Loss of a reduced-precision model's golden outputs against `exact`, the f32 model."""
    pairs = [pair for pair in _output_pairs(exact, golden) if pair[0].size]
    least = min((cosine(want, found) for want, found in pairs), default=1.0)
    off = max((_max_relative_error(want, found) for want, found in pairs), default=0.0)
    return LossSpec(float(np.clip(least, -1, 1)), min(off, _MOST_OFF))


def worse(one: LossSpec | None, other: LossSpec | None) -> LossSpec | None:
    """Return the loss with the lower cosine, of two that occurred in sequence."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda loss: loss.cosine)


def code_note(made: Graph, loss: LossSpec) -> str:
    """Describe `made`, a model with quantized weights."""
    coded = sum(node.op.coded_weights for node in made.nodes)
    return f"low-bit weights: {coded} of {len(made.nodes)} operators; {loss.describe()}"


def sample_note(exact: Graph, made: Graph, samples: Sequence[Mapping[str, Array]]) -> str:
    """Describe the loss of `made` against `exact` on samples it was not fitted to: least and median
    cosine."""
    cosines = []
    for each in samples:
        with np.errstate(all="ignore"):
            found, want = (evaluate(graph, each).outputs for graph in (made, exact))
        cosines.append(least_cosine(want, found))
    return (
        f"fitted to samples: on {len(cosines)} held-out samples, outputs have a cosine of at least "
        f"{min(cosines):.5f} with the float model's, {float(np.median(cosines)):.5f} in the median"
    )


def _output_pairs(exact: Graph, golden: Golden) -> list[tuple[Array, Array]]:
    """Pairs of `exact` outputs for the golden inputs and golden outputs, in f64."""
    with np.errstate(all="ignore"):
        found = evaluate(exact, dict(zip(exact.inputs, golden.inputs, strict=True))).outputs
    made = zip(exact.outputs, golden.outputs, strict=True)
    return [(found[name].astype(np.float64), y.astype(np.float64)) for name, y in made]


def _max_relative_error(want: Array, found: Array) -> float:
    """Largest difference relative to the largest expected value."""
    want, found = want.astype(np.float64), found.astype(np.float64)
    with np.errstate(all="ignore"):
        off = float(np.max(np.abs(found - want), initial=0.0))
        largest = max(float(np.max(np.abs(want), initial=0.0)), _NONE)
    return off / largest if np.isfinite(off) else np.inf


def _uses_half(graph: Graph, node: Node) -> bool:
    """Whether the node computes in f16, or has weights of it."""
    ins = (graph.tensors[name] for name in node.inputs if name is not None)
    used = [graph.tensors[name] for name in node.outputs] + [t for t in ins if t.data is not None]
    return any(t.dtype is DType.F16 for t in used)


def half_note(exact: Graph, made: Graph, golden: Golden, loss: LossSpec) -> str:
    """Describe the gain and loss of `made`, which computes in f16 where it pays, against `exact` in
    f32."""
    inside = sum(_uses_half(made, node) for node in made.nodes)
    bound = max(
        float(tolerance) / max(float(np.max(np.abs(y), initial=0)), 1e-30)
        for y, tolerance in zip(golden.outputs, golden.tolerances, strict=True)
    )
    return (
        f"half precision: {inside} of {len(made.nodes)} operators, "
        f"{_constant_bytes(made):,} instead of {_constant_bytes(exact):,} bytes of constants; "
        f"golden outputs differ by {loss.off:.2%} of f32's largest value, on a board by up to "
        f"{bound:.2%} more"
    )


def _constant_bytes(graph: Graph) -> int:
    used = {name for n in graph.nodes for name in n.inputs if name is not None}
    return sum(t.bytes for t in graph.tensors.values() if t.data is not None and t.name in used)
