"""Convolutions of groups of channels, as importers write them."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Tensor

# Sizes of convolutions: groups, channels of each in and out, pixels
SIZES = (
    (6, 8, 8, 13),
    (8, 4, 4, 9),
    (2, 24, 24, 5),
    (4, 3, 16, 7),
    (13, 16, 16, 1),
    (4, 40, 32, 4),
)


def grouped(
    size: tuple[int, int, int, int],
    op: ops.Conv2D,
    window: tuple[int, int] = (3, 3),
    bias: bool = True,
    after: Operator | None = None,
) -> Graph:
    """x → Split → convolutions `op` → Concat → y, or → `after` → y."""
    rng = np.random.default_rng(sum(size))
    groups, depth, share, pixels = size
    tensors = {"x": Tensor("x", (1, pixels, pixels + 2, groups * depth), DType.F32)}
    convs: list[Node] = []
    for i in range(groups):
        names: list[str | None] = [f"x{i}", f"w{i}", f"b{i}" if bias else None]
        data = rng.standard_normal((share, *window, depth)).astype(np.float32)
        tensors[f"x{i}"] = Tensor(f"x{i}", (1, pixels, pixels + 2, depth), DType.F32)
        tensors[f"w{i}"] = Tensor(f"w{i}", data.shape, DType.F32, None, data)
        if bias:
            term = rng.standard_normal(share).astype(np.float32)
            tensors[f"b{i}"] = Tensor(f"b{i}", (share,), DType.F32, None, term)
        made = op.infer([None if n is None else tensors[n] for n in names])[0]
        tensors[f"y{i}"] = Tensor(f"y{i}", *made)
        convs.append(Node(f"c{i}", op, tuple(names), (f"y{i}",)))
    shape = (*tensors["y0"].shape[:3], groups * share)
    tensors |= {name: Tensor(name, shape, DType.F32) for name in ("all", "y")}
    joined = "y" if after is None else "all"
    nodes = [
        Node(
            "split", ops.Split(3, (depth,) * groups), ("x",), tuple(f"x{i}" for i in range(groups))
        ),
        *convs,
        Node("concat", ops.Concat(3), tuple(f"y{i}" for i in range(groups)), (joined,)),
    ]
    if after is None:
        del tensors["all"]
    else:
        nodes.append(Node("after", after, ("all",), ("y",)))
    return Graph("grouped", tensors, tuple(nodes), ("x",), ("y",))
