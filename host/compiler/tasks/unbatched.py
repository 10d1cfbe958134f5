"""Pictures without all axes: those of torchvision's detectors, which take a list of them, and give
boxes without a batch, and digits without channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Tensor
from edgekit.host.compiler.tasks.prepared import free_name

LENGTH = "_length"  # ends the name of an output with the number of rows that were found
_LEAST = 32  # pixels along an edge
_DIGIT = (1, 28, 28)  # of MNIST and those after it
_MORE = ("masks", "keypoints", "keypoints_scores")  # behind the boxes of R-CNNs


def with_batch(graph: Graph) -> Graph:
    """The graph with a picture [1, 3, h, w] as input, where its only one is [3, h, w] and its
    outputs are those of torchvision's detectors, or [1, h, w, 1] where it is [1, h, w] and the only
    output is a vector; any other as it is."""
    outputs = [graph.tensors[name] for name in graph.outputs]
    if len(graph.inputs) != 1 or graph.states:
        return graph
    own = graph.tensors[graph.inputs[0]]
    if own.shape == _DIGIT and [len(t.shape) for t in outputs] == [2]:
        shape = (*own.shape, 1)
    elif len(own.shape) == 3 and own.shape[0] == 3 and min(own.shape[1:]) >= _LEAST:
        shape = (1, *own.shape)
        if torchvision_outputs(outputs) is None:
            return graph
    else:
        return graph
    name = free_name(graph, "picture")
    given = Tensor(name, shape, own.dtype, quant=own.quant)
    node = Node(free_name(graph, "picture/alone"), ops.Reshape(own.shape), (name,), (own.name,))
    tensors = {**graph.tensors, name: given}
    return replace(graph, tensors=tensors, nodes=(node, *graph.nodes), inputs=(name,))


def torchvision_outputs(outputs: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor] | None:
    """Corners f32 [n, 4], classes s64 [n] and scores f32 [n], by their names, or by shapes and
    types, as exporters call them by numbers; None for other outputs."""
    lengths = [t for t in outputs if t.name.endswith(LENGTH) and t.shape == (1,)]
    plain = [t for t in outputs if t not in lengths]
    named = {t.name.partition(":")[0]: t for t in plain if t.name not in _MORE}
    if {*named} == {"boxes", "labels", "scores"}:
        found = [named["boxes"], named["labels"], named["scores"]]
    elif len(plain) == 3 and lengths:
        found = sorted(plain, key=lambda t: (-len(t.shape), t.dtype is not DType.I64))
    else:
        return None
    boxes, labels, scores = found
    count = labels.elements
    fits = boxes.shape == (count, 4) and labels.shape == scores.shape == (count,) and count > 0
    kinds = labels.dtype is DType.I64 and boxes.dtype is scores.dtype is DType.F32
    return (boxes, labels, scores) if fits and kinds else None
