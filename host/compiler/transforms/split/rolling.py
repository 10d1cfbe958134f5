"""Runs a chain in bands that compute nothing twice: rows that the next band needs, too, are kept.

Unlike bands for memory (bands.py), which are independent, each band depends on the one before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from edgekit.host.compiler.ir.types import Graph, Node, Tensor
from edgekit.host.compiler.transforms.split.bands import Parts, Step, union
from edgekit.host.compiler.transforms.split.build import SplitBuilder
from edgekit.host.compiler.transforms.split.cut import Cut, Site, site_of

_MOVED_AGAIN = ("move", "none")  # operators that cost as much as keeping their rows


@dataclass(frozen=True)
class _Held:
    """A band's piece of a tensor of the graph: `tensor` has its rows from `begin`."""

    tensor: Tensor
    begin: int


@dataclass(frozen=True)
class _Turn:
    """What a band does at a node: the step that computes new rows, if any, and the rows that
    readers in the band need."""

    node: Node
    step: Step | None
    wanted: Cut


def run_in_turns(
    graph: Graph, chain: Sequence[Node], cuts: Sequence[Cut], origin: dict[str, str]
) -> Graph | None:
    """Return the graph with `chain` in bands of the last node's output; None if one is impossible.
    `origin` gets the new nodes."""
    parts, kept = Parts(graph), dict[str, Cut]()
    bands = []
    for cut in cuts:
        turns = _turns_of(parts, chain, cut, kept)
        if turns is None:
            return None
        bands.append(turns)
    last, builder = chain[-1], SplitBuilder(graph)
    inside, end = {node.name for node in chain}, graph.nodes.index(last)
    for node in graph.nodes[:end]:
        if node.name not in inside:
            builder.add(node)
    held: dict[str, _Held] = {}
    made = [_add_band(builder, turns, held, str(i)) for i, turns in enumerate(bands)]
    builder.join(made, cuts[0].axis, [graph.tensors[last.outputs[0]]], last.name)
    for node in graph.nodes[end + 1 :]:
        builder.add(node)
    origin.update(builder.origin)
    return builder.finish()


def _turns_of(
    parts: Parts, chain: Sequence[Node], piece: Cut, kept: dict[str, Cut]
) -> list[_Turn] | None:
    """A band that ends with `piece`, in execution order; `kept` are the rows of each tensor that
    the band before leaves, and becomes those that this one leaves."""
    made = {name for node in chain for name in node.outputs}
    wanted = {chain[-1].outputs[0]: piece}
    turns: list[_Turn] = []
    for node in reversed(chain):
        pieces = [wanted[name] for name in node.outputs if name in wanted]
        if not pieces:
            continue  # this band would read only padding from it
        asked = union(pieces)
        if asked is None:
            return None
        there = Cut(asked.axis, asked.begin, asked.begin)
        if node.op.cost_kind not in _MOVED_AGAIN:
            there = kept.get(node.outputs[0], there)
        if there.axis != asked.axis or asked.begin < there.begin:
            return None
        step, new = None, Cut(asked.axis, max(asked.begin, there.end), asked.end)
        if new.begin < new.end:
            step = parts.step(node, new, exact=node is chain[-1])
            if step is None or not _ask_inputs(step, made, wanted):
                return None
        turns.append(_Turn(node, step, asked))
    for turn in turns:
        if turn.step is not None:
            rows = Cut(turn.wanted.axis, turn.wanted.begin, turn.step.piece.end)
            kept.update(dict.fromkeys(turn.node.outputs, rows))
    return turns[::-1]


def _ask_inputs(step: Step, made: Collection[str], wanted: dict[str, Cut]) -> bool:
    """Add what a step reads of tensors made in the chain to what is wanted; False if that is all
    of one, or along different axes."""
    for name, read in zip(step.node.inputs, step.part.inputs, strict=True):
        if name is None or name not in made:
            continue
        both = None if read is None else union((wanted.get(name, read), read))
        if both is None:
            return False
        wanted[name] = both
    return True


def _add_band(
    builder: SplitBuilder, turns: Sequence[_Turn], held: dict[str, _Held], label: str
) -> Node:
    """Add a band; `held` are the tensors of the band before, and become those of this one. Returns
    the last node."""
    added: Node | None = None
    for turn in turns:
        step = turn.step
        if step is None:
            continue
        site = site_of(builder.tensors, step.node)
        ins, cuts = list(site.ins), list(step.part.inputs)
        for i, tensor in enumerate(site.ins):
            piece = cuts[i]
            if tensor is not None and tensor.name in held and piece is not None:
                there = held[tensor.name]
                ins[i] = there.tensor
                cuts[i] = Cut(piece.axis, piece.begin - there.begin, piece.end - there.begin)
        part = replace(step.part, inputs=tuple(cuts))
        own = Site(step.node, tuple(ins), site.outs)
        added = builder.part(own, part, step.piece, label, step.node.name)
        for name, new in zip(step.node.outputs, added.outputs, strict=True):
            made = _Held(builder.tensors[new], step.piece.begin)
            held[name] = _behind(builder, held.get(name), made, turn, label)
    assert added is not None
    return added


def _behind(
    builder: SplitBuilder, before: _Held | None, new: _Held, turn: _Turn, label: str
) -> _Held:
    """`new` behind those rows of the band before that are still wanted."""
    begin, axis = turn.wanted.begin, turn.wanted.axis
    if before is None or begin >= new.begin:
        return new
    kept = Cut(axis, begin - before.begin, new.begin - before.begin)
    old = builder.piece(before.tensor, kept, turn.node.name)
    assert old is not None
    return _Held(builder.joined((old, new.tensor.name), axis, label, turn.node.name), begin)
