"""A decoder of speech that keeps the keys and values of the text so far, as Optimum exports it for
one more token (`decoder_with_past_model.onnx`): they are states, so that each token costs the same.

The file is imported for a full cache, whose last row is the new token's. Rows are then written at
POSITION, those behind it are masked, and what depends on the place is taken from the decoder for
whole texts, which has it for all places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.device.runtime.agent.generate import POSITION
from edgekit.host.compiler.frontends import import_model, outline_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Shape, State, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.errors import InputError

_PAST, _PRESENT = "past_key_values.", "present."
_TEXT, _SOUND = ".decoder.", ".encoder."
_KEY = ".key"
_NEVER = -1e30


def sound_states(decoder: Graph) -> tuple[str, ...]:
    """The outputs of a decoder with the keys and values of the sound."""
    return tuple(filter(is_sound_state, decoder.outputs))


def is_sound_state(name: str) -> bool:
    return name.startswith(_PRESENT) and _SOUND in name


def is_for_one_token(file: Path, decoder: Path, tokens: str) -> bool:
    """Whether a file takes a token, and what the `decoder` keeps of the text and the sound."""
    kept = (slot.name.removeprefix(_PRESENT) for slot in outline_model(decoder).outputs[1:])
    return {s.name for s in outline_model(file).inputs} == {tokens, *(_PAST + n for n in kept)}


def cached_step(file: Path, decoder: Graph, tokens: str, length: int) -> Graph | None:
    """The graph of the token at POSITION: the inputs `tokens` [1, length] and POSITION [1], and as
    output the logits [1, 1, words]. The tokens before it must have been computed in order. The
    sound's keys and values are states of the names that the `decoder` for texts of `length` tokens
    has for them. None for a file that is not as expected."""
    try:
        given, before = (
            _imported(file, decoder, tokens, past) for past in (length - 1, length - 2)
        )
    except InputError:
        return None
    placed = _placed(given, before, decoder, length)
    pasts = {n for n in given.inputs if n.startswith(_PAST) and _TEXT in n}
    joins = [n for n in given.nodes if pasts.intersection(filter(None, n.inputs))]
    if placed is None or {*given.inputs} != {tokens, *_pasts(given)} or len(joins) != len(pasts):
        return None
    sounds = sound_states(decoder)
    own = {f"{_PRESENT}{n.removeprefix(_PAST)}" for n in _pasts(given) if _SOUND in n}
    if own != {*sounds} or not all(_is_join(given, node, length) for node in joins):
        return None
    return _Step(given, tokens, length, placed, sounds).graph(joins)


def _imported(file: Path, decoder: Graph, tokens: str, past: int) -> Graph:
    """For so many tokens before."""
    shapes: dict[str, Shape] = {}
    for slot in outline_model(file).inputs:
        own = f"{_PRESENT}{slot.name.removeprefix(_PAST)}"
        if slot.name == tokens:
            shapes[slot.name] = (1, 1)
        elif slot.name.startswith(_PAST) and own in decoder.outputs:
            one, heads, count, size = decoder.tensors[own].shape
            shapes[slot.name] = (one, heads, past if _TEXT in slot.name else count, size)
    return import_model(file, shapes)


def _pasts(graph: Graph) -> list[str]:
    return [name for name in graph.inputs if name.startswith(_PAST)]


def _is_join(graph: Graph, node: Node, length: int) -> bool:
    """Whether it puts the row of a new token behind those before."""
    if not isinstance(node.op, ops.Concat) or len(node.inputs) != 2 or len(node.outputs) != 1:
        return False
    shape = graph.tensors[node.outputs[0]].shape
    ours = len(shape) == 4 and node.op.axis == 2 and shape[:1] + shape[2:3] == (1, length)
    return ours and (node.inputs[0] or "") in _pasts(graph)


def _placed(
    graph: Graph, before: Graph, decoder: Graph, length: int
) -> Mapping[str, tuple[Array, int]] | None:
    """By the names of constants that depend on the place: their values for all places, and the axis
    of these. None if some are not found, or if the graphs for two places are otherwise unlike."""
    if [n.op.kind for n in graph.nodes] != [n.op.kind for n in before.nodes]:
        return None
    found: dict[str, tuple[Array, int]] = {}
    tables = [t.data for t in decoder.tensors.values() if t.data is not None]
    for name, own in ((n, t.data) for n, t in graph.tensors.items() if t.data is not None):
        other = before.tensors[name].data if name in before.tensors else None
        if other is not None and np.array_equal(own, other):
            continue
        if not own.any() and own.shape[-1] == length:
            continue  # a mask that hides nothing
        table = next((each for t in tables for each in _table(t, own, length)), None)
        if table is None or own.dtype != np.float32:
            return None
        found[name] = table
    return found


def _table(table: Array, row: Array, length: int) -> Iterable[tuple[Array, int]]:
    """The table and its axis of places, if the last of these is the row."""
    if table.ndim != row.ndim or table.dtype != row.dtype:
        return
    for axis in range(row.ndim):
        whole = (*row.shape[:axis], length, *row.shape[axis + 1 :])
        fits = row.shape[axis] == 1 and table.shape == whole
        if fits and np.array_equal(np.take(table, [length - 1], axis), row):
            yield table, axis


class _Step:
    """Makes the graph of a step of one that is for a full cache."""

    def __init__(
        self,
        given: Graph,
        tokens: str,
        length: int,
        placed: Mapping[str, tuple[Array, int]],
        sounds: Sequence[str],
    ) -> None:
        self._given, self._tokens, self._length = given, tokens, length
        self._placed, self._sounds = placed, sounds
        self._states: dict[str, State] = {}

    def graph(self, joins: list[Node]) -> Graph:
        given = self._given
        tokens = replace(given.tensors[self._tokens], shape=(1, self._length))
        own = {self._tokens: tokens, POSITION: Tensor(POSITION, (1,), DType.I32)}
        tensors = {**given.tensors, **own}
        start = replace(
            given, tensors=tensors, nodes=(), outputs=(), inputs=(self._tokens, POSITION)
        )
        to = Appender(start, "step")
        made = {name: self._at_place(to, *table) for name, table in self._placed.items()}
        made[self._tokens] = to.add(ops.Gather(1), self._tokens, POSITION)
        made |= dict(self._of_sound(to, name) for name in self._sounds)
        hidden = self._hidden(to)
        scores = self._scores([n.outputs[0] for n in joins if _KEY in (n.inputs[0] or "")])
        joined = {node.name: node for node in joins}
        for node in given.nodes:
            inputs = [made.get(n, n) if n is not None else None for n in node.inputs]
            if node.name in joined:
                outputs: tuple[str, ...] = (self._kept(to, node, inputs[1] or ""),)
            elif node.name in scores:
                scored = to.add(ops.Add(), inputs[0] or "", hidden)
                outputs = to.add_all(node.op, scored, *inputs[1:])
            else:
                outputs = to.add_all(node.op, *inputs)
            made |= dict(zip(node.outputs, outputs, strict=True))
        logits = given.outputs[0]
        done = replace(to.graph, states=self._states)
        return replace(done, outputs=(made.get(logits, logits),))

    def _at_place(self, to: Appender, table: Array, axis: int) -> str:
        return to.add(ops.Gather(axis), to.constant(table), POSITION)

    def _of_sound(self, to: Appender, name: str) -> tuple[str, str]:
        """The input of a state of the sound, and what takes its place. These states come first, as
        they do for the encoder: both share their memory."""
        past = f"{_PAST}{name.removeprefix(_PRESENT)}"
        shape = self._given.tensors[past].shape
        self._states[name] = State(name, np.zeros(shape, np.float32))
        return past, to.add(ops.ReadState(name, shape, DType.F32))

    def _hidden(self, to: Appender) -> str:
        """What is added to scores [..., length] of the tokens behind POSITION, which are not
        written yet."""
        steps = to.constant(np.arange(self._length)[None, None, None])
        at = to.add(ops.Reshape((1, 1, 1, 1)), to.add(ops.Convert(DType.F32), POSITION))
        later = to.add(ops.Less(), at, steps)
        never, zero = (to.constant(np.full((1, 1, 1, 1), v)) for v in (_NEVER, 0))
        return to.add(ops.Where(), later, never, zero)

    def _scores(self, keys: Iterable[str]) -> set[str]:
        """The names of the softmaxes of products with these keys."""
        ahead, found = set(keys), set()
        for node in self._given.nodes:
            if ahead.intersection(filter(None, node.inputs)):
                if isinstance(node.op, ops.Softmax):
                    found.add(node.name)
                else:
                    ahead.update(node.outputs)
        return found

    def _kept(self, to: Appender, join: Node, row: str) -> str:
        """The cache [1, heads, length, size] with the new row of each head at POSITION."""
        past, shape = join.inputs[0] or "", self._given.tensors[join.outputs[0]].shape
        _, heads, length, size = shape
        whole = (heads * length, size)
        self._states[past] = State(past, np.zeros(whole, np.float32))
        first = to.constant(length * np.arange(heads), DType.I32)
        at = to.add(ops.Add(), first, POSITION)
        rows = to.add(ops.Reshape((heads, size)), row)
        cache = to.add(ops.Scatter(), to.add(ops.ReadState(past, whole, DType.F32)), at, rows)
        to.add_all(ops.WriteState(past), cache)
        return to.add(ops.Reshape(shape), cache)
