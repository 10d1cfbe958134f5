"""The float graph as quantization and pruning want it: activations and factors fused, constants
folded."""

from __future__ import annotations

from edgekit.host.errors import InputError
from edgekit.host.graph.types import Graph
from edgekit.host.passes.affine import fuse_affine
from edgekit.host.passes.coded_operands import WEIGHTED
from edgekit.host.passes.dead import dead
from edgekit.host.passes.fold import fold
from edgekit.host.passes.fuse import fuse_activation, fuse_pad
from edgekit.host.passes.hard_swish import fuse_hard_swish
from edgekit.host.passes.layout import push_transposes

# Not all passes of the compiler: what these make are operators that model files have as well.
_PASSES = (
    fold, push_transposes, fuse_hard_swish, fuse_affine, dead, fuse_pad, fuse_activation, dead,
)  # fmt: skip


def float_form(graph: Graph, purpose: str = "quantize") -> Graph:
    """`graph` with fewer operators and the same outputs. InputError if it is quantized, or has
    nothing to quantize, or what else the `purpose` is."""
    coded = next((t for t in graph.tensors.values() if t.quant is not None), None)
    if coded is not None:
        raise InputError(
            f"{graph.name}: expected a model of floats, found one that is quantized already "
            f"(tensor {coded.name} of {coded.dtype.value}); compile it as it is"
        )
    for apply in _PASSES:
        graph = apply(graph)
    if not any(type(node.op) in WEIGHTED for node in graph.nodes):
        raise InputError(
            f"{graph.name}: expected convolutions or fully connected layers to {purpose}, found "
            "none; compile it as it is"
        )
    return graph
