"""Appends operators to a finished graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Shape, Tensor


class Appender:
    """Adds operators behind the outputs of a graph; names begin with `prefix`."""

    def __init__(self, graph: Graph, prefix: str) -> None:
        self._graph, self._prefix = graph, prefix
        self._tensors, self._nodes = dict(graph.tensors), list(graph.nodes)

    @property
    def graph(self) -> Graph:
        """The graph so far."""
        return replace(self._graph, tensors=dict(self._tensors), nodes=tuple(self._nodes))

    def shape(self, name: str) -> Shape:
        return self._tensors[name].shape

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]

    def floats(self, name: str) -> str:
        """The tensor as f32; quantized values as the real ones."""
        tensor = self._tensors[name]
        if tensor.dtype is DType.F32 and tensor.quant is None:
            return name
        return self.add(ops.Cast(DType.F32), name)

    def constant(self, value: ArrayLike, dtype: DType = DType.F32) -> str:
        data = np.asarray(value, dtype.numpy)
        name = self._new_name()
        self._tensors[name] = Tensor(name, data.shape, dtype, data=data)
        return name

    def add(self, op: Operator, *inputs: str) -> str:
        """The only output of `op`."""
        (made,) = self.add_all(op, *inputs)
        return made

    def add_all(self, op: Operator, *inputs: str | None) -> tuple[str, ...]:
        """The outputs of `op`. Raises ShapeError if the inputs do not fit."""
        made = []
        for shape, dtype in op.infer([None if n is None else self._tensors[n] for n in inputs]):
            made.append(self._new_name())
            self._tensors[made[-1]] = Tensor(made[-1], shape, dtype)
        self._nodes.append(Node(self._new_name(), op, inputs, tuple(made)))
        return tuple(made)

    def with_output(self, name: str, called: str) -> Graph:
        """The graph with one more output: tensor `name`, which is renamed to `called`."""
        tensors = {
            (called if key == name else key): (replace(t, name=called) if key == name else t)
            for key, t in self._tensors.items()
        }
        nodes = [
            replace(n, outputs=tuple(called if t == name else t for t in n.outputs))
            if name in n.outputs
            else n
            for n in self._nodes
        ]
        outputs = (*self._graph.outputs, called)
        return replace(self._graph, tensors=tensors, nodes=tuple(nodes), outputs=outputs)

    def _new_name(self) -> str:
        number = len(self._tensors) + len(self._nodes)
        while (name := f"{self._prefix}/{number}") in self._tensors:
            number += 1
        return name
