"""Data types for parts of operators: the part's attributes and the input pieces it reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from edgekit.host.compiler.ir.types import Array, Node, Operator, Shape, Tensor


@dataclass(frozen=True)
class Cut:
    """Elements `begin` to `end` (excluded) along `axis` of a tensor."""

    axis: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Piece:
    """The operator that computes a piece of the outputs; an input without a cut is read in full.

    `constants` replaces the values of cut constants, keyed by input.
    """

    op: Operator
    inputs: tuple[Cut | None, ...]
    constants: Mapping[int, Array] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Site:
    """A node with its tensors; operand i is None if the node omits it."""

    node: Node
    ins: tuple[Tensor | None, ...]
    outs: tuple[Tensor, ...]

    def operand(self, index: int) -> Tensor:
        """Return input `index`, which must exist (shape inference has checked it)."""
        found = self.ins[index]
        assert found is not None
        return found

    @property
    def bytes(self) -> int:
        """Total bytes of inputs, parameters and outputs, each tensor counted once."""
        present = (t for t in (*self.ins, *self.outs) if t is not None)
        return sum({t.name: t.bytes for t in present}.values())


Cutter = Callable[[Site, Cut], Piece | None]
"""Returns the part that computes a cut of the outputs; None if that axis cannot be cut."""


def site_of(tensors: Mapping[str, Tensor], node: Node) -> Site:
    ins = tuple(None if name is None else tensors[name] for name in node.inputs)
    return Site(node, ins, tuple(tensors[name] for name in node.outputs))


def part_bytes(site: Site, cut: Cut, part: Piece) -> int:
    """Total bytes of inputs, parameters and outputs of one part."""
    sizes: dict[tuple[str, Cut | None], int] = {}
    for tensor, piece in zip(site.ins, part.inputs, strict=True):
        if tensor is not None:
            sizes[tensor.name, piece] = cut_bytes(tensor, piece)
    return sum(sizes.values()) + sum(cut_bytes(t, cut) for t in site.outs)


def cut_bytes(tensor: Tensor, cut: Cut | None) -> int:
    return tensor.bytes if cut is None else tensor.bytes // tensor.shape[cut.axis] * cut.size


def cut_shape(shape: Shape, cut: Cut) -> Shape:
    return (*shape[: cut.axis], cut.size, *shape[cut.axis + 1 :])


def lies_together(shape: Shape, axis: int) -> bool:
    """Whether a piece along `axis` is contiguous in memory."""
    return math.prod(shape[:axis]) == 1


def aligned_from_the_right(site: Site, cut: Cut, indices: Sequence[int]) -> tuple[Cut | None, ...]:
    """Cut operands that broadcast to the output by NumPy's rules; others are not cut."""
    rank = len(site.outs[0].shape)
    cuts: list[Cut | None] = [None] * len(site.ins)
    for i in indices:
        shape = site.operand(i).shape
        axis = cut.axis - (rank - len(shape))
        if axis >= 0 and shape[axis] != 1:
            cuts[i] = Cut(axis, cut.begin, cut.end)
    return tuple(cuts)
