"""Splits operators until bytes(inputs + parameters + outputs) of each are within a limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.by_operator import ByOperator
from edgekit.host.compiler.ir.ops import Concat, StridedSlice
from edgekit.host.compiler.ir.types import Graph, Node, Operator, Tensor
from edgekit.host.compiler.ir.views import joins_runs, parts_of_rows, view_sources
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.transforms.split.build import SplitBuilder, even_cuts
from edgekit.host.compiler.transforms.split.cut import Cut, Site, lies_together, part_bytes, site_of
from edgekit.host.compiler.transforms.split.cutters import C, H, N, cut_node
from edgekit.host.compiler.transforms.split.search import BandSearch, BandsOf
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile

_LANES = 16  # channel parts are multiples of full vectors where that fits
_MOST_PARTS = 1024  # per operator and axis
_RESERVE = 8  # an eighth of a board's memory is reserved for its system


@dataclass(frozen=True, eq=False)
class SplitGraph:
    """The graph after splitting; `origin` maps each new node (a part, slice or join) to its
    original operator."""

    graph: Graph
    origin: Mapping[str, str]


@dataclass(frozen=True)
class _Choice:
    """An axis divided into pieces, and the bytes of the largest part."""

    cuts: tuple[Cut, ...]
    bytes: int


def memory_limit(board: BoardProfile, options: CompileOptions) -> int | None:
    """The user's limit, or the board's memory minus a reserve; None if unknown."""
    if options.memory_limit is not None:
        return options.memory_limit
    if not board.memory_bytes:
        return None
    return board.memory_bytes - board.memory_bytes // _RESERVE


def split(
    graph: Graph,
    limit: int | None,
    alive: int | None = None,
    operators: bool = True,
    bands_of: BandsOf | None = None,
) -> SplitGraph:
    """Split operators so that each needs at most `limit` bytes; None leaves the graph unchanged.
    Where more than `alive` bytes (default: the limit) are alive, chains of operators run in bands,
    which `bands_of` finds. Without `operators`, that is all: parameters, inputs and outputs are not
    in the arena.

    Quantized values do not change; floats may differ by rounding. Raises InputError with the
    operator, its bytes and the limit if no axis makes it fit.
    """
    if limit is None:
        return SplitGraph(graph, {})
    bands_of = bands_of or BandSearch().in_bands
    banded, bands = bands_of(graph, limit if alive is None else alive)
    if not operators:
        return SplitGraph(banded, bands)
    builder = SplitBuilder(banded)
    parts = parts_of_rows(banded)
    for node in banded.nodes:
        if isinstance(node.op, Concat) and parts.keys() >= {*node.inputs}:
            builder.add(node)  # copies nothing
        else:
            _Splitter(builder, limit, node).place(node)
    origin = bands | {name: bands.get(of, of) for name, of in builder.origin.items()}
    origin = {n.name: origin[n.name] for n in builder.nodes if n.name in origin}
    return SplitGraph(builder.finish() if origin else graph, origin)


def needed_bytes(tensors: Mapping[str, Tensor], node: Node) -> int:
    """Bytes of inputs, parameters and outputs that an operator needs while it runs.

    0 for views and for joins without copies; for slices, the source counts only as far as it is
    read.
    """
    site = site_of(tensors, node)
    if view_sources(tensors, node) or (site.outs and joins_runs(node, site.outs[0])):
        return 0
    if isinstance(node.op, StridedSlice):
        return 2 * site.outs[0].bytes
    return site.bytes


class _Splitter:
    """Splits one node of the original graph, and recursively its parts, until all fit."""

    def __init__(self, builder: SplitBuilder, limit: int, node: Node) -> None:
        self._builder = builder
        self._limit = limit
        self._origin = node.name
        self._bytes = needed_bytes(builder.tensors, node)

    def place(self, node: Node) -> None:
        """Add the node or, if it does not fit, its parts."""
        site = site_of(self._builder.tensors, node)
        if needed_bytes(self._builder.tensors, node) <= self._limit:
            is_new = node.name != self._origin
            self._builder.add(node, self._origin if is_new else None)
            return
        choice = self._choose_cuts(site)
        if choice is None:
            raise InputError(
                f"{self._builder.graph.name}: operator {self._origin}: expected at most "
                f"{self._limit} bytes of inputs, parameters and outputs, found {self._bytes}, and "
                "no axis along which it can be split; raise --memory-limit or choose a "
                "smaller model or a larger board"
            )
        self._apply_choice(site, choice)

    def _apply_choice(self, site: Site, choice: _Choice) -> None:
        draft = self._builder.draft()
        parts = []
        for index, cut in enumerate(choice.cuts):
            part = cut_node(site, cut)
            assert part is not None
            parts.append(draft.part(site, part, cut, str(index), self._origin))
        draft.join(parts, choice.cuts[0].axis, site.outs, self._origin)
        for node in draft.nodes:
            self.place(node)

    def _choose_cuts(self, site: Site) -> _Choice | None:
        """Return the first axis, in order of preference, along which the parts fit; else the one
        whose halving saves most, to be split further. Axes whose join fits take precedence."""
        if not site.outs:
            return None
        axes = sorted(self._candidate_axes(site), key=lambda axis: not self._join_fits(site, axis))
        halves: list[_Choice] = []
        for axis in axes:
            size = site.outs[0].shape[axis]
            for chunk in _piece_sizes(size):
                found = self._measure_cuts(site, even_cuts(axis, size, chunk), self._limit)
                if found is not None:
                    return found
            half = self._measure_cuts(site, even_cuts(axis, size, -(-size // 2)))
            if half is not None and half.bytes < needed_bytes(self._builder.tensors, site.node):
                halves.append(half)
        return min(halves, key=lambda c: c.bytes) if halves else None

    def _candidate_axes(self, site: Site) -> list[int]:
        """Axes to consider; pure copies are split only along axes that need no second copy."""
        shape = site.outs[0].shape
        axes = [axis for axis in _preferred_axes(site) if shape[axis] > 1]
        if isinstance(site.node.op, Concat | StridedSlice):
            axes = [axis for axis in axes if lies_together(shape, axis)]
        return axes

    def _join_fits(self, site: Site, axis: int) -> bool:
        """Whether the join fits; if it copies, its parts and result are needed at once."""
        return all(lies_together(t.shape, axis) or 2 * t.bytes <= self._limit for t in site.outs)

    def _measure_cuts(self, site: Site, cuts: list[Cut], limit: float = math.inf) -> _Choice | None:
        """None if a part cannot be made, or needs more than `limit` bytes: of hundreds of parts
        the first shows it."""
        most = 0
        for cut in cuts:
            part = cut_node(site, cut)
            if part is None:
                return None
            most = max(most, _part_needs(site, cut, part_bytes(site, cut, part)))
            if most > limit:
                return None
        return _Choice(tuple(cuts), most)


def _part_needs(site: Site, cut: Cut, whole: int) -> int:
    if isinstance(site.node.op, StridedSlice):
        return 2 * site.outs[0].bytes // site.outs[0].shape[cut.axis] * cut.size
    return whole


def _piece_sizes(size: int) -> list[int]:
    """Piece sizes to try, largest first; multiples of full vectors before others."""
    sizes = dict.fromkeys(-(-size // count) for count in range(2, min(size, _MOST_PARTS) + 1))
    rounded: dict[int, None] = {}
    for chunk in sizes:
        wide = -(-chunk // _LANES) * _LANES
        if _LANES < wide < size:
            rounded[wide] = None
        rounded[chunk] = None
    return list(rounded)


_orders = ByOperator[Callable[[Any, int], list[int]]]()


def _preferred_axes(site: Site) -> list[int]:
    """Axes of the (first) output in order of preference; not all of them can be cut. By default
    outermost first, because those pieces are contiguous and need no copies."""
    order, rank = _orders.of(type(site.node.op)), len(site.outs[0].shape)
    return list(range(rank)) if order is None else order(site.node.op, rank)


@_orders(ops.Conv2D, ops.DepthwiseConv2D)
def _order_of_convolution(_op: Operator, _rank: int) -> list[int]:
    """Images, then channels; finally rows, where rows shared by windows are read twice."""
    return [N, C, H]


@_orders(ops.TransposeConv2D, ops.AveragePool2D, ops.MaxPool2D, ops.ResizeBilinear)
def _order_of_window(_op: Operator, _rank: int) -> list[int]:
    """Images or channels, never reduced axes."""
    return [N, C]


@_orders(ops.Transpose)
def _order_of_transpose(op: ops.Transpose, rank: int) -> list[int]:
    """Axes that stay in place first."""
    moved = [op.permutation[a] != a for a in range(rank)]
    return sorted(range(rank), key=lambda a: moved[a])
