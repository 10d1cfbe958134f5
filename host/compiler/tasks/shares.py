"""Scores of classes from 0 to 1, as people expect them, of models that end before the softmax."""

from __future__ import annotations

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.makers import maker_of
from edgekit.host.compiler.ir.types import Activation, DType, Graph, Node, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.prepared import free_name

SCORES = "scores"
_SHARES = (ops.Softmax, ops.Logistic, ops.HardSigmoid, ops.Exp, ops.UnitLength)
_OF_ONE = (ops.Add, ops.Sub, ops.Mul, ops.Concat, ops.Mean, ops.AveragePool2D)
_MOVES = (ops.Reshape, ops.Cast)
_DEEPEST = 8  # operators between shares and their mean
_LEAST_STEP = 1 / 256  # of quantized shares, which are below 1


def as_shares(graph: Graph, scores: Tensor, independent: bool = False) -> tuple[Graph, str, str]:
    """The graph with one more output, the scores from 0 to 1 as f32, the output's name, and what
    makes them of the model's own. These themselves, and nothing, if they are from 0 to 1 already.

    `independent`: several classes may be right at once. A logarithm of shares becomes the shares
    by the softmax, too.
    """
    if is_share(graph, scores.name):
        return graph, scores.name, ""
    to = Appender(graph, SCORES)
    x = to.add(ops.Reshape((1, scores.elements)), to.floats(scores.name))
    single = independent or scores.elements == 1
    op, what = (ops.Logistic(), "sigmoid") if single else (ops.Softmax(), "softmax")
    name = free_name(graph, SCORES)
    return to.with_output(to.add(op, x), name), name, what


def is_share(graph: Graph, name: str) -> bool:
    """Whether values are from 0 to 1 by what makes them, or no more than the quotient of values,
    such as a softmax that is written out, or a vector of length 1."""
    tensor = graph.tensors[name]
    if tensor.quant is None and tensor.dtype not in (DType.F32, DType.F16):
        return True  # numbers of another kind
    producer = graph.producer()
    node = producer.get(name)
    while not _has_range(tensor) and node is not None and isinstance(node.op, _MOVES):
        tensor, node = graph.tensors[node.inputs[0] or ""], producer.get(node.inputs[0] or "")
    return _has_range(tensor) or _is_made_so(graph, producer, name, _DEEPEST)


def both_shares(graph: Graph, share: Tensor) -> tuple[Graph, str] | None:
    """The graph with the shares of two classes as one more output, f32 [1, 2], and its name, where
    `share` is one value that a sigmoid makes: that of the second class. None for others."""
    node = maker_of(graph.producer(), share.name)
    if share.elements != 1 or node is None or not isinstance(node.op, ops.Logistic):
        return None
    to = Appender(graph, SCORES)
    second = to.add(ops.Reshape((1, 1)), to.floats(share.name))
    first = to.add(ops.Sub(), to.constant([[1.0]]), second)
    name = free_name(graph, SCORES)
    return to.with_output(to.add(ops.Concat(1), first, second), name), name


def is_vector(graph: Graph, name: str) -> bool:
    """Whether values are divided by what is computed of them, but are no softmax: they have the
    length 1."""
    producer = graph.producer()
    node = maker_of(producer, name)
    if node is None or not isinstance(node.op, ops.Div):
        return node is not None and isinstance(node.op, ops.UnitLength)
    above, below = (maker_of(producer, part or "") for part in node.inputs)
    return below is not None and not (above and isinstance(above.op, ops.Exp))


def _has_range(tensor: Tensor) -> bool:
    """Whether the type holds values from 0 to 255/256 only, as for a quantized softmax."""
    quant, lowest = tensor.quant, {DType.U8: 0, DType.I8: -128}.get(tensor.dtype)
    if quant is None or quant.per_channel or lowest is None:
        return False
    return float(quant.scale.flat[0]) == _LEAST_STEP and int(quant.zero_point.flat[0]) == lowest


def _is_made_so(graph: Graph, producer: dict[str, Node], name: str, depth: int) -> bool:
    node = maker_of(producer, name)
    if node is None or not depth:
        return False
    if getattr(node.op, "activation", None) is Activation.RELU_0_TO_1:
        return True
    if isinstance(node.op, ops.Clip):
        return node.op.low >= 0 and node.op.high <= 1
    others = [n for n in node.inputs if n is not None and graph.tensors[n].data is None]
    if isinstance(node.op, ops.Div):
        return len(others) > 1 or _is_made_so(graph, producer, others[0], depth - 1)
    if isinstance(node.op, _OF_ONE):
        return all(_is_made_so(graph, producer, n, depth - 1) for n in others)
    return isinstance(node.op, _SHARES)
