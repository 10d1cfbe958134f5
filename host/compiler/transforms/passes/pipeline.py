"""Runs the board-independent passes in order; host/compiler/pipeline.py has all passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.transforms.passes.affine import fuse_affine, split_bias
from edgekit.host.compiler.transforms.passes.before_concat import move_before_concat
from edgekit.host.compiler.transforms.passes.dead import dead
from edgekit.host.compiler.transforms.passes.fold import fold
from edgekit.host.compiler.transforms.passes.fourier import fuse_fourier
from edgekit.host.compiler.transforms.passes.fuse import (
    fuse_activation,
    fuse_pad,
    fuse_residual,
    fuse_slice,
)
from edgekit.host.compiler.transforms.passes.gelu import fuse_gelu
from edgekit.host.compiler.transforms.passes.hard_swish import fuse_hard_swish
from edgekit.host.compiler.transforms.passes.join_slices import join_slices
from edgekit.host.compiler.transforms.passes.layout import push_transposes
from edgekit.host.compiler.transforms.passes.neutral import drop_neutral
from edgekit.host.compiler.transforms.passes.normalize import fuse_layer_norm
from edgekit.host.compiler.transforms.passes.outputs import transpose_bytes
from edgekit.host.compiler.transforms.passes.reciprocal import use_reciprocals
from edgekit.host.compiler.transforms.passes.repeats import share_repeats
from edgekit.host.compiler.transforms.passes.rows import lift_rows
from edgekit.host.compiler.transforms.passes.silu import fuse_silu
from edgekit.host.compiler.transforms.passes.softmax_mean import fuse_softmax_mean

PASSES: tuple[tuple[str, Callable[[Graph], Graph]], ...] = (
    ("fold", fold),
    ("drop_neutral", drop_neutral),
    ("share_repeats", share_repeats),
    ("use_reciprocals", use_reciprocals),
    ("fuse_layer_norm", fuse_layer_norm),
    ("fuse_gelu", fuse_gelu),
    ("push_transposes", push_transposes),
    ("fuse_softmax_mean", fuse_softmax_mean),
    ("transpose_bytes", transpose_bytes),
    ("fuse_fourier", fuse_fourier),
    ("lift_rows", lift_rows),
    ("join_slices", join_slices),
    ("fuse_hard_swish", fuse_hard_swish),
    ("fuse_silu", fuse_silu),
    ("move_before_concat", move_before_concat),
    ("split_bias", split_bias),
    ("fuse_affine", fuse_affine),
    ("dead", dead),
    ("fuse_pad", fuse_pad),
    ("fuse_slice", fuse_slice),
    ("fuse_activation", fuse_activation),
    ("fuse_residual", fuse_residual),
    ("dead", dead),
)


@dataclass(frozen=True)
class PassCount:
    """Number of operators before and after one pass."""

    name: str
    before: int
    after: int


def run_passes(graph: Graph) -> tuple[Graph, list[PassCount]]:
    """Apply all passes; returns the graph and the operator counts of each pass."""
    counts = []
    for name, apply in PASSES:
        after = apply(graph)
        counts.append(PassCount(name, len(graph.nodes), len(after.nodes)))
        graph = after
    return run_in_bodies(graph), counts


def run_in_bodies(graph: Graph) -> Graph:
    """Apply the passes to the bodies of loops."""
    if not any(isinstance(node.op, ops.Loop) for node in graph.nodes):
        return graph
    nodes = [
        replace(node, op=replace(node.op, body=run_passes(node.op.body)[0]))
        if isinstance(node.op, ops.Loop)
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes))
