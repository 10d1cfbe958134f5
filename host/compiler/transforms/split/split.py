"""Splitting until every operator fits: bytes(inputs + parameters + outputs) up to a limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgekit.host.compiler.ir.ops import Concat, StridedSlice
from edgekit.host.compiler.ir.types import Graph, Node, Tensor
from edgekit.host.compiler.ir.views import joins_runs, view_sources
from edgekit.host.compiler.transforms.split.axes import preferred_axes
from edgekit.host.compiler.transforms.split.bands import in_bands
from edgekit.host.compiler.transforms.split.build import Builder, even_cuts
from edgekit.host.compiler.transforms.split.cut import Cut, Site, lies_together, part_bytes, site_of
from edgekit.host.compiler.transforms.split.cutters import cut_node
from edgekit.host.errors import InputError

_LANES = 16  # parts of channels are made of whole vectors where that fits
_MOST_PARTS = 1024  # of one operator along one axis


@dataclass(frozen=True, eq=False)
class SplitGraph:
    """The graph after splitting; `origin` names, for each node that is part of one (or a slice or
    join of it), the operator it comes from."""

    graph: Graph
    origin: Mapping[str, str]


@dataclass(frozen=True)
class _Choice:
    """An axis cut into pieces, and the bytes of the largest part."""

    cuts: tuple[Cut, ...]
    bytes: int


def split(graph: Graph, limit: int | None, alive: int | None = None) -> SplitGraph:
    """Every operator needs at most `limit` bytes afterwards; None: as it is. Where more than
    `alive` bytes (by default the limit) are at once, chains of operators run in bands of rows.

    Results are the same: no reduction is split. Raises InputError naming the operator, its bytes
    and the limit where no axis makes it fit.
    """
    if limit is None:
        return SplitGraph(graph, {})
    banded, bands = in_bands(graph, limit if alive is None else alive)
    builder = Builder(banded)
    for node in banded.nodes:
        _Splitter(builder, limit, node).place(node)
    origin = bands | {name: bands.get(of, of) for name, of in builder.origin.items()}
    origin = {n.name: origin[n.name] for n in builder.nodes if n.name in origin}
    return SplitGraph(builder.finish() if origin else graph, origin)


def needed_bytes(tensors: Mapping[str, Tensor], node: Node) -> int:
    """Bytes of inputs, parameters and outputs that have to be at hand for an operator to run.

    Nothing for another view of the same bytes; of a tensor that a piece is copied from, only that
    piece.
    """
    site = site_of(tensors, node)
    if view_sources(tensors, node) or (site.outs and joins_runs(node, site.outs[0])):
        return 0
    if isinstance(node.op, StridedSlice):
        return 2 * site.outs[0].bytes
    return site.bytes


class _Splitter:
    """Splits one node of the original graph, and what comes out of it, until all fits."""

    def __init__(self, builder: Builder, limit: int, node: Node) -> None:
        self._builder = builder
        self._limit = limit
        self._origin = node.name
        self._bytes = needed_bytes(builder.tensors, node)

    def place(self, node: Node) -> None:
        """Adds the node, or the parts it becomes."""
        site = site_of(self._builder.tensors, node)
        if needed_bytes(self._builder.tensors, node) <= self._limit:
            is_new = node.name != self._origin
            self._builder.add(node, self._origin if is_new else None)
            return
        choice = self._choose(site)
        if choice is None:
            raise InputError(
                f"{self._builder.graph.name}: operator {self._origin}: expected at most "
                f"{self._limit} bytes of inputs, parameters and outputs, found {self._bytes}, and "
                "no axis along which it can be split so far; raise --memory-limit or choose a "
                "smaller model or a larger board"
            )
        self._split(site, choice)

    def _split(self, site: Site, choice: _Choice) -> None:
        draft = self._builder.draft()
        parts = []
        for index, cut in enumerate(choice.cuts):
            part = cut_node(site, cut)
            assert part is not None
            parts.append(draft.part(site, part, cut, str(index), self._origin))
        draft.join(parts, choice.cuts[0].axis, site.outs, self._origin)
        for node in draft.nodes:
            self.place(node)

    def _choose(self, site: Site) -> _Choice | None:
        """The first axis in order of preference that makes it fit by itself; else the one whose
        halving helps most, to be split further. Axes whose join fits come before the others."""
        if not site.outs:
            return None
        axes = sorted(self._axes(site), key=lambda axis: not self._join_fits(site, axis))
        halves: list[_Choice] = []
        for axis in axes:
            size = site.outs[0].shape[axis]
            for chunk in _chunks(size):
                found = self._measure(site, even_cuts(axis, size, chunk))
                if found is not None and found.bytes <= self._limit:
                    return found
            half = self._measure(site, even_cuts(axis, size, -(-size // 2)))
            if half is not None and half.bytes < needed_bytes(self._builder.tensors, site.node):
                halves.append(half)
        return min(halves, key=lambda c: c.bytes) if halves else None

    def _axes(self, site: Site) -> list[int]:
        """Axes to consider; what only copies is cut where that needs no second copy."""
        shape = site.outs[0].shape
        axes = [axis for axis in preferred_axes(site) if shape[axis] > 1]
        if isinstance(site.node.op, Concat | StridedSlice):
            axes = [axis for axis in axes if lies_together(shape, axis)]
        return axes

    def _join_fits(self, site: Site, axis: int) -> bool:
        """A join that copies needs its parts and its result at once."""
        return all(lies_together(t.shape, axis) or 2 * t.bytes <= self._limit for t in site.outs)

    def _measure(self, site: Site, cuts: list[Cut]) -> _Choice | None:
        most = 0
        for cut in cuts:
            part = cut_node(site, cut)
            if part is None:
                return None
            most = max(most, _part_needs(site, cut, part_bytes(site, cut, part)))
        return _Choice(tuple(cuts), most)


def _part_needs(site: Site, cut: Cut, whole: int) -> int:
    if isinstance(site.node.op, StridedSlice):
        return 2 * site.outs[0].bytes // site.outs[0].shape[cut.axis] * cut.size
    return whole


def _chunks(size: int) -> list[int]:
    """Sizes of pieces to try, large ones first; whole vectors before other numbers."""
    sizes = dict.fromkeys(-(-size // count) for count in range(2, min(size, _MOST_PARTS) + 1))
    rounded: dict[int, None] = {}
    for chunk in sizes:
        wide = -(-chunk // _LANES) * _LANES
        if _LANES < wide < size:
            rounded[wide] = None
        rounded[chunk] = None
    return list(rounded)
