"""What half precision costs a model: its outputs beside those of f32."""

from __future__ import annotations

import numpy as np

from edgekit.host.artifact import Golden
from edgekit.host.graph.evaluate import evaluate
from edgekit.host.graph.types import DType, Graph


def half_loss(exact: Graph, golden: Golden) -> float:
    """How far golden outputs of half precision are from those of `exact`, the same model in f32:
    the worst of an output, as a fraction of its largest value."""
    with np.errstate(all="ignore"):
        found = evaluate(exact, dict(zip(exact.inputs, golden.inputs, strict=True))).outputs
        lost = 0.0
        for name, half in zip(exact.outputs, golden.outputs, strict=True):
            want = found[name].astype(np.float64)
            if want.size:
                off = np.max(np.abs(half.astype(np.float64) - want))
                largest = max(float(np.max(np.abs(want))), 1e-30)
                lost = max(lost, float(off) / largest if np.isfinite(off) else np.inf)
    return lost


def half_note(exact: Graph, made: Graph, golden: Golden) -> str:
    """A sentence about `made`, which computes in f16 where it pays: what that wins, and costs."""
    inside = sum(DType.F16 in {made.tensors[t].dtype for t in n.outputs} for n in made.nodes)
    bound = max(
        float(tolerance) / max(float(np.max(np.abs(y), initial=0)), 1e-30)
        for y, tolerance in zip(golden.outputs, golden.tolerances, strict=True)
    )
    return (
        f"half precision: {inside} of {len(made.nodes)} operators, "
        f"{_constants(made):,} instead of {_constants(exact):,} bytes of constants; golden "
        f"outputs are off by {half_loss(exact, golden):.2%} of f32's largest value, a board's may "
        f"be by {bound:.2%} more"
    )


def _constants(graph: Graph) -> int:
    used = {name for n in graph.nodes for name in n.inputs if name is not None}
    return sum(t.bytes for t in graph.tensors.values() if t.data is not None and t.name in used)
