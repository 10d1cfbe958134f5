"""Runs 1x1 convolutions before the upsampling of what they read.

Each pixel of an upsampled image is a copy or a mean of others, so a product with it is one, too.
Where a detector's neck concatenates an upsampled map with another, the convolution becomes two:
that of the small map, whose result is upsampled, and that of the rest, to which it is added. It
saves three quarters of the products with the first, and the copy into the concatenation.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.ops import Concat, Conv2D, Gather, ResizeBilinear
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Tensor
from edgekit.host.compiler.transforms.passes.rewrite import Users

_GROWS = 4  # times, at least: less does not pay for the addition


@dataclasses.dataclass(frozen=True)
class _Upsampled:
    """Part `at` of what `conv` reads by way of `concat`: `source` after `steps`, in order."""

    conv: Node
    concat: Node
    at: int
    source: str
    steps: tuple[Node, ...]


def upsample_late(graph: Graph) -> Graph:
    """Divide f32 1x1 convolutions of concatenations with an upsampled part."""
    while True:
        users = Users(graph)
        matches = (_match(users, node) for node in graph.nodes)
        found = next((each for each in matches if each is not None), None)
        if found is None:
            return graph
        graph = _divided(graph, found)


def _match(users: Users, node: Node) -> _Upsampled | None:
    concat, tensors = users.single(node.inputs[0]) if node.inputs else None, users.graph.tensors
    if concat is None or type(node.op) is not Conv2D or not isinstance(concat.op, Concat):
        return None
    weights, whole = tensors[node.inputs[1] or ""], tensors[concat.outputs[0]]
    plain = dataclasses.replace(Conv2D(), activation=node.op.activation) == node.op
    if not plain or any(node.inputs[3:]) or weights.data is None or weights.shape[1:3] != (1, 1):
        return None
    if {weights.dtype, whole.dtype} != {DType.F32} or concat.op.axis != len(whole.shape) - 1:
        return None
    if len(concat.inputs) != len({*concat.inputs}):
        return None
    found = []
    for at, name in enumerate(concat.inputs):
        source, steps = _source(users, name or "")
        part = tensors[name or ""]
        grows = part.elements >= _GROWS * tensors[source].elements
        if grows and weights.shape[0] <= part.shape[-1] and len(concat.inputs) > 1:
            found.append(_Upsampled(node, concat, at, source, steps))
    return max(found, key=lambda each: tensors[each.source].shape[-1], default=None)


def _source(users: Users, name: str) -> tuple[str, tuple[Node, ...]]:
    """What `name` is upsampled from, and the nodes that do it."""
    steps: tuple[Node, ...] = ()
    while (maker := users.single(name)) is not None and _keeps_channels_apart(users, maker):
        steps, name = (maker, *steps), maker.inputs[0] or ""
    return name, steps


def _keeps_channels_apart(users: Users, node: Node) -> bool:
    """Whether pixels of the result are weighted sums of pixels, in all channels alike."""
    if isinstance(node.op, ResizeBilinear):
        return True
    if not isinstance(node.op, Gather) or node.op.axis not in (1, 2):
        return False
    indices = users.graph.tensors[node.inputs[1] or ""]
    return indices.data is not None and len(indices.shape) == 1


def _divided(graph: Graph, found: _Upsampled) -> Graph:
    tensors, conv, concat = dict(graph.tensors), found.conv, found.concat
    taken = {*tensors, *(node.name for node in graph.nodes)}

    def add(stem: str, shape: tuple[int, ...], data: Array | None = None) -> str:
        name = fresh_name(stem, taken)
        tensors[name] = Tensor(name, shape, DType.F32, data=data)
        return name

    weights, parts = tensors[conv.inputs[1] or ""], [name or "" for name in concat.inputs]
    assert weights.data is not None
    channels = [tensors[name].shape[-1] for name in parts]
    ends = np.cumsum(channels)
    pieces = np.split(weights.data, ends[:-1], axis=3)
    own, rest = pieces.pop(found.at), parts[: found.at] + parts[found.at + 1 :]
    count, other = weights.shape[0], np.concatenate(pieces, axis=3)
    small = add(f"{conv.outputs[0]}.small", (*tensors[found.source].shape[:3], count))
    kernel = add(f"{weights.name}.small", own.shape, np.ascontiguousarray(own))
    before = [Node(f"{conv.name}.small", Conv2D(), (found.source, kernel, None), (small,))]
    for step in found.steps:
        shape = (*tensors[step.outputs[0]].shape[:3], count)
        made = add(f"{step.outputs[0]}.small", shape)
        before.append(dataclasses.replace(step, inputs=(small, *step.inputs[1:]), outputs=(made,)))
        small = made
    image, joined = rest[0], []
    if len(rest) > 1:
        image = add(f"{concat.outputs[0]}.rest", (*tensors[rest[0]].shape[:3], other.shape[3]))
        joined = [dataclasses.replace(concat, inputs=tuple(rest), outputs=(image,))]
    kernel = add(f"{weights.name}.rest", other.shape, other)
    bias = conv.inputs[2] if len(conv.inputs) > 2 else None
    last = dataclasses.replace(conv, inputs=(image, kernel, bias, small))
    new = {found.steps[0].name: before, concat.name: joined, conv.name: [last]}
    new |= {step.name: [] for step in found.steps[1:]}
    nodes = tuple(made for node in graph.nodes for made in new.get(node.name, [node]))
    used = {*graph.inputs, *graph.outputs}
    used |= {name for node in nodes for name in (*node.inputs, *node.outputs) if name is not None}
    tensors = {name: tensor for name, tensor in tensors.items() if name in used}
    return dataclasses.replace(graph, nodes=nodes, tensors=tensors)
