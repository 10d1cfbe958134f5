"""The axes of its output that an operator is split along, best first."""

from __future__ import annotations

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.transforms.split.cut import Site
from edgekit.host.compiler.transforms.split.cutters import C, H, N


def preferred_axes(site: Site) -> list[int]:
    """Axes of the (first) output, in order of preference; one that cannot be cut may be among them.

    Convolutions and fully connected layers: frames, then channels; rows of convolutions come after
    them, with the rows that windows share read twice. Pools and resizing: frames or channels, never
    the axes they reduce. Transposes: axes that stay in place. All others: the outermost first,
    because its pieces are single runs of memory and need no copies.
    """
    op, rank = site.node.op, len(site.outs[0].shape)
    if isinstance(op, ops.Conv2D | ops.DepthwiseConv2D):
        return [N, C, H]
    if isinstance(op, ops.TransposeConv2D | ops.AveragePool2D | ops.MaxPool2D | ops.ResizeBilinear):
        return [N, C]
    if isinstance(op, ops.FullyConnected):
        return [*range(rank - 1), rank - 1]
    if isinstance(op, ops.Transpose):
        moved = [op.permutation[a] != a for a in range(rank)]
        return sorted(range(rank), key=lambda a: moved[a])
    return list(range(rank))
