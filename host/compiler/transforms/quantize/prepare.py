"""Prepares a float graph for quantization and pruning: fuses operators and folds constants."""

from __future__ import annotations

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.transforms.passes.affine import fuse_affine
from edgekit.host.compiler.transforms.passes.dead import dead
from edgekit.host.compiler.transforms.passes.fold import fold
from edgekit.host.compiler.transforms.passes.fuse import fuse_activation, fuse_pad
from edgekit.host.compiler.transforms.passes.hard_swish import fuse_hard_swish
from edgekit.host.compiler.transforms.passes.layout import push_transposes
from edgekit.host.compiler.transforms.passes.reciprocal import use_reciprocals
from edgekit.host.errors import InputError

# Only those compiler passes whose resulting operators also exist in model files.
_PASSES = (
    fold, use_reciprocals, push_transposes, fuse_hard_swish, fuse_affine, dead, fuse_pad,
    fuse_activation, dead,
)  # fmt: skip


def float_form(graph: Graph, purpose: str = "quantize") -> Graph:
    """Return an equivalent graph with fewer operators. Raises InputError if it is quantized or has
    nothing to process; `purpose` is the verb for the message."""
    quantized = next((t for t in graph.tensors.values() if t.quant is not None), None)
    if quantized is not None:
        raise InputError(
            f"{graph.name}: expected a model of floats, found an already quantized one "
            f"(tensor {quantized.name} of {quantized.dtype.value}); compile it unchanged"
        )
    for apply in _PASSES:
        graph = apply(graph)
    if not any(isinstance(node.op, ops.Weighted) for node in graph.nodes):
        raise InputError(
            f"{graph.name}: expected convolutions or fully connected layers to {purpose}, found "
            "none; compile it unchanged"
        )
    return graph
