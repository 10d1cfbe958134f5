"""Turns outputs that are inputs of the next run into states: a cache of keys and values, a counter.

before    in ─► ... ─► out             the caller passes `out` back as `in`, run by run
after     read state ─► ... ─► write   the release keeps it; a reset zeroes it
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import Array, Graph, Node, State, Tensor
from edgekit.host.compiler.options import StateBinding
from edgekit.host.errors import InputError

_SHOWN = 8  # maximum number of names in an error message


def tie_states(
    graph: Graph, ties: Sequence[StateBinding], output_names: Mapping[str, str] | None = None
) -> Graph:
    """Replace the inputs and outputs of `ties` by states of their shape and dtype, initially zero.
    In a tie, `*` matches the same text in both names. `output_names`: as in Graph.

    Raises InputError for an input or output that does not exist, is tied twice or differs from its
    counterpart.
    """
    pairs = _match_ties(graph, ties, {v: k for k, v in (output_names or {}).items()})
    if not pairs:
        return graph
    outputs = tuple(name for name in graph.outputs if name not in pairs.values())
    if not outputs:
        raise InputError("--state: expected an output that is not a state, found none; leave one")
    kept = {name: graph.tensors[name] for name in pairs}
    zeros = {n: State(n, np.zeros(t.shape, t.dtype.numpy)) for n, t in kept.items()}
    return replace(
        graph,
        nodes=_insert_state_nodes(graph, pairs),
        inputs=tuple(name for name in graph.inputs if name not in pairs),
        outputs=outputs,
        states={**graph.states, **zeros},
    )


def from_beginning(graph: Graph) -> Graph:
    """The first run of a graph with states: these are constants, and nothing is kept."""
    tensors, nodes = dict(graph.tensors), list[Node]()
    for node in graph.nodes:
        if isinstance(node.op, ops.ReadState):
            name, initial = node.outputs[0], graph.states[node.op.state].initial
            tensors[name] = replace(tensors[name], data=initial.reshape(tensors[name].shape))
        elif not isinstance(node.op, ops.WriteState):
            nodes.append(node)
    return replace(graph, tensors=tensors, nodes=tuple(nodes), states={})


def _insert_state_nodes(graph: Graph, pairs: Mapping[str, str]) -> tuple[Node, ...]:
    """Insert state reads just before their first use and writes as soon as the new value is known
    and the old one was read: live tensors take memory."""
    taken = {node.name for node in graph.nodes}
    last, made = len(graph.nodes), dict.fromkeys(graph.tensors, 0)
    needed = dict.fromkeys(pairs, last)
    for i, node in enumerate(graph.nodes):
        made.update((name, i + 1) for name in node.outputs)
        needed.update((n, min(needed[n], i)) for n in node.inputs if n is not None and n in needed)
    made |= needed
    reads, writes = ([list[Node]() for _ in range(last + 1)] for _ in range(2))
    for name, out in pairs.items():
        t = graph.tensors[name]
        read = ops.ReadState(name, t.shape, t.dtype)
        reads[needed[name]].append(Node(fresh_name(f"{name}/read", taken), read, (), (name,)))
        write = Node(fresh_name(f"{name}/write", taken), ops.WriteState(name), (out,), ())
        writes[max(made[out], needed[name])].append(write)
    rest = [[node] for node in graph.nodes] + [[]]
    return tuple(
        itertools.chain(*(itertools.chain(*at) for at in zip(reads, writes, rest, strict=True)))
    )


def _match_ties(
    graph: Graph, ties: Sequence[StateBinding], inner: Mapping[str, str]
) -> dict[str, str]:
    """Map inputs to outputs. `inner`: the graph's names of outputs that the model calls
    differently."""
    pairs: dict[str, str] = {}
    for tie in ties:
        for name, out in _matching_pairs(graph, tie, inner):
            if name in pairs or out in pairs.values():
                raise InputError(
                    f"--state: expected each input and output once, found {name}={out} and "
                    + next(f"{a}={b}" for a, b in pairs.items() if a == name or b == out)
                )
            _check_pair(graph, name, out)
            pairs[name] = out
    return pairs


def _matching_pairs(
    graph: Graph, tie: StateBinding, inner: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the input-output pairs that match a tie; all of them must exist."""
    if "*" in tie.input:
        before, after = tie.input.split("*")
        found = [
            (name, tie.output.replace("*", name[len(before) : len(name) - len(after)]))
            for name in graph.inputs
            if name.startswith(before)
            and name.endswith(after)
            and len(name) >= len(before) + len(after)
        ]
    else:
        found = [(tie.input, tie.output)] if tie.input in graph.inputs else []
    if not found:
        raise _missing_error("input", tie.input, graph.inputs)
    found = [(name, inner.get(out, out)) for name, out in found]
    for _, out in found:
        if out not in graph.outputs:
            raise _missing_error("output", out, graph.outputs)
    return found


def _missing_error(what: str, name: str, known: Sequence[str]) -> InputError:
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return InputError(
        f"--state: expected an {what} of the model ({', '.join(known[:_SHOWN])}{more}), "
        f"found {name}"
    )


def _check_pair(graph: Graph, name: str, out: str) -> None:
    a, b = graph.tensors[name], graph.tensors[out]
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        raise InputError(
            f"--state: expected {name} and {out} of one fixed shape and type, "
            f"found {a.dtype.value}{list(a.shape)} and {b.dtype.value}{list(b.shape)}; for a "
            "growing cache, export a model that writes into one of fixed length"
        )
    if not np.array_equal(_quant_parameters(a), _quant_parameters(b)):
        raise InputError(
            f"--state: expected {name} and {out} of one scale and zero point, found "
            "different ones; quantize the model with one for both"
        )


def _quant_parameters(tensor: Tensor) -> Array:
    q = tensor.quant
    return np.zeros(0) if q is None else np.concatenate([q.scale, q.zero_point])
