"""The ends of a model that takes one picture: its input, its outputs and what makes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.makers import maker_of
from edgekit.host.compiler.ir.types import Graph, Node, Shape, Tensor


@dataclass(frozen=True)
class InputImage:
    """The model's only input: its name, its extents in pixels, and its channels. `relative`: the
    model gives boxes relative to them, as Ultralytics' .tflite files do."""

    name: str
    height: int
    width: int
    relative: bool
    channels: int = 3

    @property
    def is_plausible(self) -> bool:
        """Whether it looks like a picture: features of sound also have one channel."""
        return self.channels == 3 or self.height == self.width

    def grid(self, stride: int) -> tuple[int, int]:
        """Rows and columns of cells, the last ones possibly cut."""
        return math.ceil(self.height / stride), math.ceil(self.width / stride)

    def cells(self, stride: int) -> int:
        return math.prod(self.grid(stride))


@dataclass(frozen=True)
class Ends:
    """A graph as recognizers of heads see it."""

    graph: Graph
    image: InputImage

    @property
    def outputs(self) -> list[Tensor]:
        return [self.graph.tensors[name] for name in self.graph.outputs]

    def only(self, rank: int) -> Tensor | None:
        """The only output, if it is of one picture and has so many axes."""
        fits = len(self.outputs) == 1 and len(self.outputs[0].shape) == rank
        return self.outputs[0] if fits and self.outputs[0].shape[0] == 1 else None

    def shapes(self) -> dict[str, Shape]:
        """The shape of each output."""
        return {tensor.name: tensor.shape for tensor in self.outputs}

    def computes(self, kind: str) -> bool:
        """Whether any operator is of this kind."""
        return any(node.op.kind == kind for node in self.graph.nodes)

    def is_from(self, name: str, kind: str) -> bool:
        """Whether an operator of this kind makes the tensor, which may then be moved or
        converted."""
        node = self.maker(name)
        return node is not None and node.op.kind == kind

    def is_from_integers(self, name: str) -> bool:
        """Whether the tensor has the values of integers, which may then be moved."""
        while node := self._producers.get(name):
            name = node.inputs[0] or ""
            if not self.graph.tensors[name].dtype.is_float:
                return isinstance(node.op, ops.Cast | ops.Convert)
            if not isinstance(node.op, ops.Reshape | ops.Transpose | ops.Cast | ops.Convert):
                return False
        return False

    def parts(self, name: str) -> tuple[tuple[str, int], ...]:
        """The tensors that are concatenated to this one, which may then be moved, and their sizes
        along that axis; empty if it is not made so."""
        node = self.maker(name)
        if node is None or not isinstance(node.op, ops.Concat):
            return ()
        names = [part for part in node.inputs if part is not None]
        axis = node.op.axis
        return tuple((part, self.graph.tensors[part].shape[axis]) for part in names)

    def choices(self, name: str) -> int:
        """Among how many values the largest is chosen, whose places are the tensor, which may then
        be moved or converted; 0 if it is not made so."""
        node = self.maker(name)
        if node is None or not isinstance(node.op, ops.ArgExtreme):
            return 0
        return self.graph.tensors[node.inputs[0] or ""].shape[node.op.axis]

    def maker(self, name: str) -> Node | None:
        """What makes the tensor, which may then be moved or converted."""
        return maker_of(self._producers, name)

    @cached_property
    def _producers(self) -> dict[str, Node]:
        return self.graph.producer()


def image_of(graph: Graph, relative: bool) -> InputImage | None:
    """The input of a model that takes one picture; None for others."""
    if len(graph.inputs) != 1:
        return None
    tensor = graph.tensors[graph.inputs[0]]
    if len(tensor.shape) != 4 or tensor.shape[0] != 1:
        return None
    _, *extents = tensor.shape
    if extents[2] in (1, 3) and min(extents[:2]) > 3:
        return InputImage(tensor.name, extents[0], extents[1], relative, extents[2])
    if extents[0] in (1, 3) and min(extents[1:]) > 3:
        return InputImage(tensor.name, extents[1], extents[2], relative, extents[0])
    return None


def pictures_at_once(graph: Graph) -> int:
    """How many pictures the only input takes; 0 if it takes one, or something else."""
    shape = graph.tensors[graph.inputs[0]].shape if len(graph.inputs) == 1 else ()
    several = len(shape) == 4 and shape[0] > 1 and 3 in (shape[1], shape[3])
    return shape[0] if several else 0
