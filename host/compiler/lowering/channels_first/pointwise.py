"""Multi-row fully connected layers as pointwise convolutions.

`regions` can then decide when they are cheaper on channels-first images, where the vector dimension
runs over rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from edgekit.host.compiler.costs.layout_table import LayoutTable
from edgekit.host.compiler.costs.layouts import Saved
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import Graph, Node, Operator, Shape, Tensor
from edgekit.host.compiler.lowering.channels_first.forms import is_sparse, runs_anywhere
from edgekit.host.compiler.lowering.channels_first.regions import choose_channels_first
from edgekit.host.compiler.lowering.groups import MethodGroups
from edgekit.host.compiler.lowering.sparse.pruned import pruned_weights
from edgekit.host.compiler.transforms.passes.dead import dead


def choose_layouts(
    graph: Graph,
    table: LayoutTable | None,
    vl: int,
    groups: MethodGroups | None = None,
    saved: Sequence[Saved] = (),
) -> Graph:
    """As `choose_channels_first`, but also considers pruned multi-row layers."""
    layers = {n.name for n in graph.nodes if _is_pruned(graph, n)}
    if not layers or table is None:
        return choose_channels_first(graph, table, vl, groups, saved)
    tried = choose_channels_first(_Points(graph, layers).run(), table, vl, groups, saved)
    paying = {n.name for n in tried.nodes if isinstance(n.op, ops.ChannelsFirstConv2D)} & layers
    if paying == layers:
        return tried
    if groups is not None and (paying or any(is_sparse(graph, n, table) for n in graph.nodes)):
        groups.made.clear()  # these regions assumed that all layers were converted
    chosen = _Points(graph, paying).run() if paying else graph
    return choose_channels_first(chosen, table, vl, groups, saved)


def _is_pruned(graph: Graph, node: Node) -> bool:
    weights = pruned_weights(graph, node)
    return weights is not None and graph.tensors[node.inputs[0] or ""].elements > weights.shape[1]


class _Points:
    """Rebuilds the graph with each row of the given layers as a point of an image."""

    def __init__(self, graph: Graph, layers: set[str]) -> None:
        self._graph, self._layers = graph, layers
        self._tensors = dict(graph.tensors)
        self._names = {*graph.tensors, *(n.name for n in graph.nodes)}
        self._images: dict[str, str] = {}
        self._nodes: list[Node] = []

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if node.name in self._layers:
                self._convert_dense_layer(node)
            elif self._is_between(node):
                names = tuple(self._images[name or ""] for name in node.inputs)
                self._add_image_node(node, node.op, names, self._tensors[names[0]].shape)
            else:
                self._nodes.append(node)
        made = dataclasses.replace(self._graph, tensors=self._tensors, nodes=tuple(self._nodes))
        return dead(made)  # removes reshapes between two layers that nobody reads

    def _is_between(self, node: Node) -> bool:
        """True if `node` is an element-wise operator on outputs of converted layers only."""
        if not runs_anywhere(node.op):
            return False
        shapes = {self._graph.tensors[name or ""].shape for name in (*node.inputs, *node.outputs)}
        return len(shapes) == 1 and all(name in self._images for name in node.inputs)

    def _convert_dense_layer(self, node: Node) -> None:
        assert isinstance(node.op, ops.FullyConnected)
        x, w = (self._graph.tensors[name or ""] for name in node.inputs[:2])
        assert w.data is not None
        n, k = w.shape
        rows = x.elements // k
        if x.name not in self._images:
            self._images[x.name] = image = fresh_name(f"{x.name}.points", self._names)
            self._add_reshape(x.name, (1, 1, rows, k), image)
        name = fresh_name(f"{w.name}.points", self._names)
        self._tensors[name] = Tensor(name, (n, 1, 1, k), w.dtype, None, w.data.reshape(n, 1, 1, k))
        op = ops.Conv2D(activation=node.op.activation)
        self._add_image_node(
            node, op, (self._images[x.name], name, *node.inputs[2:]), (1, 1, rows, n)
        )

    def _add_image_node(
        self, node: Node, op: Operator, inputs: tuple[str | None, ...], shape: Shape
    ) -> None:
        """Adds `node` on images; its original output becomes a reshape of the new one."""
        out = self._graph.tensors[node.outputs[0]]
        name = fresh_name(f"{out.name}.points", self._names)
        self._tensors[name] = Tensor(name, shape, out.dtype)
        self._images[out.name] = name
        self._nodes.append(Node(node.name, op, inputs, (name,)))
        self._add_reshape(name, out.shape, out.name)

    def _add_reshape(self, name: str, shape: Shape, to: str) -> None:
        self._tensors[to] = Tensor(to, shape, self._tensors[name].dtype)
        node = fresh_name(f"{to}.shaped", self._names)
        self._nodes.append(Node(node, ops.Reshape(shape), (name,), (to,)))
