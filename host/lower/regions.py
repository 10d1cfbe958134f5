"""The choice of operators that run on channel-major images, where weights are sparse enough for
that to pay.

Every operator that has a kernel for both layouts gets a cost for each, every image between two of
them the cost of its transpose; the cheapest choice for the whole graph is a minimum cut. So a
region of neighbors converts only what crosses its border, and only where that pays.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from edgekit.host.graph import ops
from edgekit.host.graph.names import fresh_name
from edgekit.host.graph.ops.planar import TO_PIXELS, TO_PLANES
from edgekit.host.graph.types import Array, DType, Graph, Node, Operator, Shape, Tensor
from edgekit.host.lower.groups import Groups
from edgekit.host.lower.planar import band_of, planar_window
from edgekit.host.lower.sparse_window import bands_of
from edgekit.host.lower.window import Window
from edgekit.host.passes.cut import TwoLabels
from edgekit.kb.features import GemmShape
from edgekit.kb.layout_table import WINDOWS, LayoutTable, Work
from edgekit.kb.operators import Candidate, Form, OperatorMethod

# The kernels of an operator on pixels and on planes, as the table names them.
_KERNELS: dict[type[Operator], tuple[str, str]] = {
    ops.Conv2D: ("dense", "sparse"),
    ops.DepthwiseConv2D: ("depthwise", "planar_depthwise"),
}
_ROWS = ("dense_rows", "sparse_rows")  # of images that are one row of points: layers, as a rule
ANYWHERE = (ops.Add, ops.Binary, ops.Clamp, ops.Function, ops.HardSwish, ops.Logistic, ops.Mul)


@dataclass(frozen=True)
class Costs:
    """The costs of one operator on either layout, in the table's unit."""

    pixels: float
    planes: float


def choose_planes(
    graph: Graph, table: LayoutTable | None, vl: int, groups: Groups | None = None
) -> Graph:
    """`graph` with the operators that are cheaper so on channel-major images, and transposes at
    the borders. `vl`: floats of a vector. Without a table the graph stays as it is. What `groups`
    know of a region stands over its price."""
    if table is None or not any(is_sparse(graph, n, table) for n in graph.nodes):
        return graph
    chosen = _cheapest(graph, table, vl)
    if groups is not None:
        regions = _regions(graph, table, vl)
        chosen = {n for r in regions for n in _region(graph, table, vl, r, chosen, groups)}
    return _Rewrite(graph, chosen).run() if chosen else graph


def _region(
    graph: Graph, table: LayoutTable, vl: int, inside: set[str], cheapest: set[str], groups: Groups
) -> set[str]:
    """Of a region's operators those that are to run on planes: none, or what the least price says;
    where that is none, the least price at which its largest pruned convolution does."""
    first = max(
        (n for n in graph.nodes if n.name in inside and is_sparse(graph, n, table)),
        key=lambda n: _dense_products(graph, n),
    )
    planes = cheapest & inside or _cheapest(graph, table, vl, first.name) & inside
    y, data = graph.tensors[first.outputs[0]].shape, graph.tensors[first.inputs[1] or ""].data
    assert data is not None
    n, k = data.shape[0], math.prod(data.shape[1:])
    form = Form(
        "region", GemmShape(math.prod(y[:3]), k, n), "f32", (y[0], y[1], y[2]), zeros=tenths(data)
    )
    candidates = [
        Candidate(OperatorMethod("in_place", "f32"), _cost(graph, table, vl, inside, set())),
        Candidate(OperatorMethod("sparse", "f32"), _cost(graph, table, vl, inside, planes)),
    ]
    around = {t for n in graph.nodes if n.name in inside for t in (*n.inputs, *n.outputs) if t}
    moves = {f"{t}{kind}" for t in around for kind in (".moved", ".planes.moved")}
    method = groups.choose(first.name, form, candidates, inside, moves)
    return planes if method.family == "sparse" else set()


def tenths(weights: Array) -> int:
    """How many of ten weights are zero."""
    return round(10 * (1 - np.count_nonzero(weights) / weights.size))


def _dense_products(graph: Graph, node: Node) -> int:
    weights = graph.tensors[node.inputs[1] or ""]
    return graph.tensors[node.outputs[0]].elements * math.prod(weights.shape[1:])


def _regions(graph: Graph, table: LayoutTable, vl: int) -> list[set[str]]:
    """Neighbors that all have a form for channel-major images, where one is pruned."""
    able = {n.name for n in graph.nodes if _priced_form(graph, n, table, vl) is not None}
    producer = graph.producer()
    region: dict[str, set[str]] = {}
    for node in graph.nodes:
        if node.name not in able:
            continue
        mine = region[node.name] = {node.name}
        for name in node.inputs:
            before = producer.get(name or "")
            if before is not None and before.name in able:
                mine |= region[before.name]
        for name in mine:
            region[name] = mine
    pruned = [region[n.name] for n in graph.nodes if is_sparse(graph, n, table) and n.name in able]
    return list({id(each): each for each in pruned}.values())


def _cost(graph: Graph, table: LayoutTable, vl: int, inside: set[str], planes: set[str]) -> float:
    """What the operators of a region cost with some of them on planes, and what lies between."""
    total, producer, consumers = 0.0, graph.producer(), graph.consumers()
    for node in graph.nodes:
        found = costs(graph, node, table, vl) if node.name in inside else None
        if found is not None:
            total += found.planes if node.name in planes else found.pixels
    for name, tensor in graph.tensors.items():
        if len(tensor.shape) == 4 and tensor.data is None:
            made = name in producer and producer[name].name in planes
            users = {n.name in planes for n in consumers[name]}
            users |= {False} if name in graph.outputs else set()
            total += _transpose_cost(tensor, table) if users - {made} else 0.0
    return total


def is_sparse(graph: Graph, node: Node, table: LayoutTable) -> bool:
    """A convolution of which some weights are zero, and of a kind that was measured."""
    if not isinstance(node.op, ops.Conv2D) or _priced_form(graph, node, table, 1) is None:
        return False
    data = graph.tensors[node.inputs[1] or ""].data
    return data is not None and _has_zeros(data)


def _has_zeros(weights: Array) -> bool:
    return int(np.count_nonzero(weights)) < weights.size


def _is_pointwise(op: ops.Conv2D | ops.PlanarConv2D, weights: Shape) -> bool:
    return op.stride == (1, 1) and not op.padding.any and weights[1:3] == (1, 1)


def _cheapest(graph: Graph, table: LayoutTable, vl: int, forced: str = "") -> set[str]:
    """Names of the nodes that are to run on planes, of which `forced` is one."""
    labels = TwoLabels()
    at: dict[str, int] = {}
    outside = labels.thing(0, math.inf)
    for node in graph.nodes:
        found = costs(graph, node, table, vl)
        at[node.name] = outside
        if found is not None:
            pixels = math.inf if node.name == forced else found.pixels
            at[node.name] = labels.thing(pixels, found.planes)
    producer, consumers = graph.producer(), graph.consumers()
    for name, tensor in graph.tensors.items():
        if len(tensor.shape) != 4 or tensor.data is not None:
            continue
        made = at[producer[name].name] if name in producer else outside
        users = {at[n.name] for n in consumers[name]}
        users |= {outside} if name in graph.outputs else set()
        if users - {made}:
            labels.convert_between(made, users, _transpose_cost(tensor, table))
    second = labels.second_label()
    return {name for name, number in at.items() if second[number]}


def _transpose_cost(tensor: Tensor, table: LayoutTable) -> float:
    moves = tensor.shape[3] > 1 and math.prod(tensor.shape[1:3]) > 1
    return table.cost("transpose", Work(0, tensor.elements)) if moves else 0.0


def costs(graph: Graph, node: Node, table: LayoutTable, vl: int) -> Costs | None:
    """None for an operator that runs on pixels alone."""
    form = _priced_form(graph, node, table, vl)
    if form is None:
        return None
    names = _KERNELS.get(type(node.op))
    if names is None:
        return Costs(0.0, 0.0)
    x, y = graph.tensors[node.inputs[0] or ""].shape, graph.tensors[node.outputs[0]].shape
    data = graph.tensors[node.inputs[1] or ""].data
    assert data is not None
    if isinstance(form, ops.PlanarConv2D):
        if not _is_pointwise(form, data.shape):
            names = WINDOWS
        elif y[1] == 1:
            names = _ROWS
    works = (_on_pixels(node.op, data, x, y, vl), _on_planes(form, data, x, y, vl))
    pixels, planes = (table.cost(name, work) for name, work in zip(names, works, strict=True))
    return Costs(pixels, planes)


def work_of(graph: Graph, node: Node, vl: int) -> Work:
    """What a convolution, on either layout, or a transpose has to do."""
    y = graph.tensors[node.outputs[0]].shape
    if isinstance(node.op, ops.Transpose):
        return Work(0, math.prod(y))
    data = graph.tensors[node.inputs[1] or ""].data
    assert data is not None
    x = graph.tensors[node.inputs[0] or ""].shape
    if isinstance(node.op, ops.Planar):
        x, y = (tuple(shape[p] for p in TO_PIXELS) for shape in (x, y))
        return _on_planes(node.op, data, x, y, vl)
    return _on_pixels(node.op, data, x, y, vl)


def _on_pixels(op: Operator, weights: Array, x: Shape, y: Shape, vl: int) -> Work:
    """Whole vectors of channels."""
    values = math.prod(y[:3]) * _whole(y[3], vl)
    taps = weights.shape[1] * weights.shape[2]
    products = values * taps * (weights.shape[3] if isinstance(op, ops.Conv2D) else 1)
    return Work(products, values, inputs=math.prod(x))


def _on_planes(op: Operator, weights: Array, x: Shape, y: Shape, vl: int) -> Work:
    """Whole vectors of pixels, for a depthwise window those of a row, for another one those of a
    band; only weights that are not zero."""
    (n, h, w, c), inputs = y, math.prod(x)
    if isinstance(op, ops.PlanarConv2D):
        pixels = n * _whole(h * w, vl)
        if not _is_pointwise(op, weights.shape):
            bands = bands_of(_window(op, x, weights.shape, y))
            assert bands is not None
            pixels = bands.all_pixels(vl)
        return Work(int(np.count_nonzero(weights)) * pixels, c * pixels, inputs=inputs)
    values = n * c * h * _whole(w, vl)
    return Work(values * weights.shape[1] * weights.shape[2], values, n * c * h, inputs)


def _whole(length: int, vl: int) -> int:
    return -(-length // vl) * vl


def planar_form(graph: Graph, node: Node, vl: int) -> Operator | None:
    """The operator on channel-major images; None where there is no kernel for it."""
    op = node.op
    named = [None if t is None else graph.tensors[t] for t in node.inputs]
    y = graph.tensors[node.outputs[0]] if node.outputs else None
    if y is None or len(y.shape) != 4 or y.dtype is not DType.F32 or not named or not named[0]:
        return None
    if named[0].dtype is not DType.F32:
        return None
    if isinstance(op, ops.Conv2D | ops.DepthwiseConv2D):
        w = named[1]
        if w is None or w.data is None or w.dtype is not DType.F32:
            return None
        if isinstance(op, ops.Conv2D):
            return _conv_form(op, named[0], w, y)
        return _depthwise_form(op, named[0], w, y, vl)
    if any(t is None or t.dtype is not DType.F32 or t.data is not None for t in named):
        return None
    return _moving_form(op, [t.shape for t in named if t is not None], y.shape)


def _conv_form(op: ops.Conv2D, x: Tensor, w: Tensor, y: Tensor) -> Operator | None:
    """With a window only of pruned weights: those that are not zero are read one by one."""
    form = ops.PlanarConv2D(op.stride, op.dilation, op.padding, op.activation)
    if _is_pointwise(op, w.shape):
        return form
    assert w.data is not None
    fits = _has_zeros(w.data) and bands_of(_window(form, x.shape, w.shape, y.shape))
    return form if fits else None


def _priced_form(graph: Graph, node: Node, table: LayoutTable, vl: int) -> Operator | None:
    """As `planar_form`, of kinds that were measured."""
    form = planar_form(graph, node, vl)
    if not isinstance(form, ops.PlanarConv2D) or table.knows(WINDOWS[1]):
        return form
    return form if _is_pointwise(form, graph.tensors[node.inputs[1] or ""].shape) else None


def _depthwise_form(
    op: ops.DepthwiseConv2D, x: Tensor, w: Tensor, y: Tensor, vl: int
) -> Operator | None:
    if op.multiplier != 1 or x.shape[3] == 1:
        return None
    form = ops.PlanarDepthwiseConv2D(op.stride, op.dilation, op.padding, op.activation)
    return form if band_of(_window(form, x.shape, w.shape, y.shape), vl) else None


def _window(
    op: ops.PlanarConv2D | ops.PlanarDepthwiseConv2D, x: Shape, weights: Shape, y: Shape
) -> Window:
    """Of images [n,h,w,c]."""
    x, y = (tuple(shape[p] for p in TO_PLANES) for shape in (x, y))
    return planar_window(op, x, weights, y)


def _moving_form(
    op: Operator, shapes: list[tuple[int, ...]], y: tuple[int, ...]
) -> Operator | None:
    """The channel-major form of operators whose kernels do not care which axis is which."""
    if isinstance(op, ANYWHERE):
        return op if all(shape == y for shape in shapes) else None
    if isinstance(op, ops.Concat):
        return ops.Concat(TO_PLANES.index(op.axis))
    if isinstance(op, ops.Pad):
        before, after = ([v[p] for p in TO_PLANES] for v in (op.before, op.after))
        return ops.Pad(tuple(before), tuple(after))
    return None


class _Rewrite:
    """Builds the graph anew; a tensor may stand in it as pixels, as planes, or as both."""

    def __init__(self, graph: Graph, chosen: set[str]) -> None:
        self._graph, self._chosen = graph, chosen
        self._tensors = {
            n: t for n, t in graph.tensors.items() if t.data is not None or n in graph.inputs
        }
        self._planes: dict[str, str] = {}
        self._names = set(graph.tensors) | {n.name for n in graph.nodes}
        self._nodes: list[Node] = []

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if node.name in self._chosen:
                self._on_planes(node)
            else:
                for name in node.inputs:
                    self._as_pixels(name)
                self._tensors |= {name: self._graph.tensors[name] for name in node.outputs}
                self._nodes.append(node)
        for name in self._graph.outputs:
            self._as_pixels(name)
        return dataclasses.replace(self._graph, tensors=self._tensors, nodes=tuple(self._nodes))

    def _on_planes(self, node: Node) -> None:
        op = planar_form(self._graph, node, 1)
        assert op is not None
        images = op.images if isinstance(op, ops.Planar) else range(len(node.inputs))
        inputs = tuple(
            self._as_planes(name) if i in images and name is not None else name
            for i, name in enumerate(node.inputs)
        )
        self._nodes.append(Node(node.name, op, inputs, (self._new_planes(node.outputs[0]),)))

    def _new_planes(self, name: str) -> str:
        """The channel-major form of a tensor, not yet made."""
        old, own = self._graph.tensors[name], fresh_name(f"{name}.planes", self._names)
        shape = tuple(old.shape[p] for p in TO_PLANES)
        self._tensors[own] = Tensor(own, shape, old.dtype)
        self._planes[name] = own
        return own

    def _as_planes(self, name: str) -> str:
        if name not in self._planes:
            own = self._new_planes(name)
            self._move(self._tensors[name], TO_PLANES, own)
        return self._planes[name]

    def _as_pixels(self, name: str | None) -> None:
        if name is None or name in self._tensors:
            return
        self._tensors[name] = self._graph.tensors[name]
        self._move(self._tensors[self._planes[name]], TO_PIXELS, name)

    def _move(self, x: Tensor, permutation: tuple[int, ...], name: str) -> None:
        long = [p for p in permutation if x.shape[p] != 1]
        shape = tuple(x.shape[p] for p in permutation)
        still = long == sorted(long)
        op = ops.Reshape(shape) if still else ops.Transpose(permutation)
        node = fresh_name(f"{name}.moved", self._names)
        self._nodes.append(Node(node, op, (x.name,), (name,)))
