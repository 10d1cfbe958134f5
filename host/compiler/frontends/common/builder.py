"""Builds the graph for all importers and folds constants as it goes.

Shape arithmetic of exporters (Shape → Gather → Concat → Reshape) therefore never becomes nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import DTypeLike

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.checks import need_elements
from edgekit.host.compiler.ir.evaluate import COMPUTED_BYTES, is_foldable, run_node
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import (
    Array,
    DType,
    Graph,
    Node,
    Operator,
    Quant,
    Shape,
    ShapeError,
    State,
    Tensor,
)

_BYTES_LIMIT = 1 << 40  # of all computed tensors: more than any board computes in a day
_COMPUTED_GROWTH = 32  # of computed constants, as a multiple of those in the file
_CONSTANT_LIMIT = 4 << 30  # of all constants, including copies of the file's constants
_NAME_LIMIT = 500  # of a name in a manifest: 512
_RANK_LIMIT = 8
UNNAMED = "tensor_"  # name prefix of tensors without a usable name in the file
_DTYPES = {d.numpy: d for d in DType}


def dtype_of(value: Array) -> DType:
    found = _DTYPES.get(value.dtype)
    if found is None:
        raise ShapeError(f"expected a supported element type, found {value.dtype}")
    return found


class GraphBuilder:
    """Collects tensors and nodes; methods return `Tensor`s, and constants carry their data.

    A constant enters the graph with its first reader; before, only the importer holds it.
    """

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._nodes: list[Node] = []
        self._node_names: set[str] = set()
        self._reserved: set[str] = set()
        self._taken: set[str] = set()  # tensor names, used or reserved
        self._bytes = 0
        self._given_bytes = 0  # of the file's constants
        self._computed_bytes = 0  # of constants computed from others, or by importers
        self._mark = 0
        self._label = ""
        self._notes: dict[str, None] = {}
        self._once: dict[Hashable, list[Tensor]] = {}
        self._folded: dict[str, Hashable] = {}  # the key of each result in `_once`
        self._constants: set[str] = set()  # names, of constants without readers too
        self._bodies: list[int] = []  # step counts of the open loop bodies
        self.limits: dict[str, tuple[float, float]] = {}
        self.states: dict[str, State] = {}  # of the graph

    def reserve(self, names: Sequence[str]) -> None:
        """Reserves names for the graph's inputs and outputs."""
        self._reserved.update(names)
        self._taken.update(names)

    def take(self, name: str) -> str:
        """Claims `name`, or a similar name if it is taken."""
        return fresh_name(name, self._taken)

    def distinct(self, names: Sequence[str]) -> list[str]:
        """`names`, with a similar name for each that occurred before: outputs listed twice."""
        first = {name: i for i, name in reversed([*enumerate(names)])}
        return [n if first[n] == i else self.take(n) for i, n in enumerate(names)]

    def begin(self, label: str) -> None:
        """Attributes the nodes that follow to the file's node `label`."""
        self._mark = len(self._nodes)
        self._label = label

    @property
    def begun(self) -> tuple[int, str]:
        """The state to pass to `resume` after importing subgraphs of the file's node."""
        return self._mark, self._label

    def resume(self, begun: tuple[int, str]) -> None:
        self._mark, self._label = begun

    def note(self, text: str) -> None:
        """Records a decision of the importer for the user: one sentence; duplicates are dropped."""
        self._notes[text] = None

    @property
    def size(self) -> int:
        """The number of nodes so far."""
        return len(self._nodes)

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]

    def producer(self, name: str) -> Node | None:
        """The node that produces a tensor; None for inputs and constants."""
        return next((n for n in reversed(self._nodes) if name in n.outputs), None)

    def limit(self, x: Tensor, low: float, high: float) -> None:
        """Records that the values of `x` lie between `low` and `high`."""
        self.limits[x.name] = low, high

    @property
    def repeats(self) -> int:
        """How often a node emitted now would run, given the open loops."""
        return math.prod(self._bodies)

    def open_body(self, steps: int) -> int:
        """Starts a loop body; returns the index of its first node."""
        self._bodies.append(steps)
        return len(self._nodes)

    def close_body(
        self, first: int, ins: Sequence[Tensor], outs: Sequence[Tensor]
    ) -> tuple[Graph, list[Tensor]]:
        """Moves the nodes since `first` that depend on `ins` into a graph. Returns it and the outer
        tensors it captures, which are appended to its inputs. All other nodes are loop-invariant
        and stay in place."""
        nodes = [*self._taken_out(first, ins)]
        names = []
        for t in outs:
            names.append(fresh_name("kept", self._taken))
            own = fresh_name(names[-1], self._node_names)
            nodes.append(Node(own, ops.Reshape(t.shape), (t.name,), (names[-1],)))
            self._enter(t)
            self._tensors[names[-1]] = replace(t, name=names[-1], data=None)
        made = {*(t.name for t in ins), *(n for node in nodes for n in node.outputs)}
        read = dict.fromkeys(n for node in nodes for n in node.inputs if n is not None)
        more = [self._tensors[n] for n in read if n not in made]
        captured = [t for t in more if t.data is None]
        tensors = {n: self._tensors[n] for n in (*made, *read)}
        for name in made:
            del self._tensors[name]
        ends = tuple(t.name for t in (*ins, *captured)), tuple(names)
        return Graph("body", tensors, tuple(nodes), *ends, given_bytes=self._given_bytes), captured

    def drop_body(self, first: int, ins: Sequence[Tensor]) -> None:
        """Discards the open body."""
        for node in self._taken_out(first, ins):
            for name in node.outputs:
                self._tensors.pop(name, None)

    def _taken_out(self, first: int, ins: Sequence[Tensor]) -> list[Node]:
        inside, outside = list[Node](), list[Node]()
        known = {t.name for t in ins}
        for node in self._nodes[first:]:
            if known.intersection(n for n in node.inputs if n is not None):
                inside.append(node)
                known.update(node.outputs)
            else:
                outside.append(node)
        self._nodes[first:] = outside
        self._bodies.pop()
        return inside

    def input(self, name: str, shape: Shape, dtype: DType, quant: Quant | None = None) -> Tensor:
        self._charge_activation(shape, dtype)
        return self._add_tensor(Tensor(name, shape, dtype, quant))

    def place(self, constant: Tensor) -> Tensor:
        """Adds a constant of the file; the caller has claimed its name."""
        assert constant.data is not None
        self._given_bytes += constant.data.nbytes
        return self._add_tensor(constant)

    def stored(self, value: Array) -> Tensor:
        """Adds a constant of the file that has no name."""
        return self.place(self._unnamed(value, None))

    def _fold_empty(self, x: Tensor) -> Tensor:
        """`x`, or an equivalent constant if it has no elements."""
        if x.elements or x.data is not None:
            return x
        return self.constant(np.zeros(x.shape, x.dtype.numpy), x.dtype)

    def constant(self, value: Array, dtype: DType | None = None) -> Tensor:
        """Adds a constant of the importer's own.

        Raises `ShapeError` if those and the folded ones are out of proportion to the file's.
        """
        self.need_room(value.shape, value.dtype)
        self._computed_bytes += value.nbytes
        return self._add_tensor(self._unnamed(value, dtype))

    def need_room(self, shape: Sequence[int], kind: DTypeLike) -> None:
        """Raises `ShapeError` for a constant that `constant` would refuse, before it is made: a
        file of a few bytes can request any size."""
        kind = np.dtype(kind)
        if not self._may_compute(math.prod(shape) * kind.itemsize):
            raise ShapeError(
                f"expected constants of at most {self._most_computed >> 20} MiB in addition to the "
                f"file's, found {list(shape)} of {kind} and others"
            )

    def _unnamed(self, value: Array, dtype: DType | None) -> Tensor:
        data = np.ascontiguousarray(value).reshape(value.shape)
        kind = dtype_of(data) if dtype is None else dtype
        name = fresh_name(f"{self._label}.const", self._taken)
        return Tensor(name, data.shape, kind, None, data)

    def floats(self, *values: float) -> Tensor:
        """An f32 scalar, or a vector of several values."""
        data = np.array(values if len(values) > 1 else values[0], np.float32)
        return self.constant(data)

    def with_quant(self, x: Tensor, quant: Quant) -> Tensor:
        """A copy of the constant `x` with a quantization."""
        return self._add_tensor(
            replace(x, name=fresh_name(f"{x.name}.q", self._taken), quant=quant)
        )

    def emit(self, op: Operator, *ins: Tensor | None, quant: Quant | None = None) -> Tensor:
        """Emits `op` and returns its only output."""
        return self.emit_all(op, ins, quant)[0]

    def emit_all(
        self,
        op: Operator,
        ins: Sequence[Tensor | None],
        quant: Quant | Sequence[Quant | None] | None = None,
    ) -> list[Tensor]:
        """Emits `op` and returns all outputs; a sequence `quant` has one entry per output. Without
        `quant`, Reshape and Transpose keep the quantization of their input.

        Raises `ShapeError` if the inputs do not fit.
        """
        ins = [None if t is None else self._fold_empty(t) for t in ins]
        inferred = op.infer(ins)
        if quant is None and isinstance(op, ops.Reshape | ops.Transpose) and ins[0] is not None:
            quant = ins[0].quant if ins[0].is_quantized else None
        quants = [quant] * len(inferred) if quant is None or isinstance(quant, Quant) else quant
        outs = []
        for (shape, dtype), own in zip(inferred, quants, strict=True):
            name = fresh_name(f"{self._label}.{op.kind}", self._taken)
            outs.append(Tensor(name, shape, dtype, self._applicable_quant(dtype, own)))
        name = fresh_name(f"{self._label}.{op.kind}", self._node_names)
        node = Node(
            name, op, tuple(None if t is None else t.name for t in ins), tuple(t.name for t in outs)
        )
        if outs and all(t.elements == 0 for t in outs):
            for t in outs:
                self._charge_activation(t.shape, t.dtype)
            return [self._fold_empty(t) for t in outs]
        size = sum(t.elements * t.dtype.bytes for t in outs)
        if is_foldable(op, [t for t in ins if t is not None], outs) and self._may_compute(size):
            key = (op, node.inputs, tuple(t.quant for t in outs))
            made = self.once(
                key, lambda: [self._add_tensor(t) for t in self._fold_node(node, ins, outs)]
            )
            self._folded.update((t.name, key) for t in made)
            return made
        for t in outs:
            self._charge_activation(t.shape, t.dtype)
        for given in ins:
            self._enter(given)
        self._nodes.append(node)
        return [self._add_tensor(t) for t in outs]

    def once(self, key: Hashable, make: Callable[[], list[Tensor]]) -> list[Tensor]:
        """Caches the constants `make` returns under `key`, which must cover all they depend on.
        Steps of an unrolled loop request the same constants repeatedly."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def release(self, x: Tensor) -> None:
        """Forgets a folded constant that the importer does not read again; nodes keep theirs."""
        self._once.pop(self._folded.pop(x.name, None), None)

    def rename(self, x: Tensor, name: str) -> Tensor:
        """`x` renamed to the file's name for it, if the current file node created it."""
        usable = name.isprintable() and 0 < len(name) <= _NAME_LIMIT
        given = name in self._tensors or name in self._constants or name in self._reserved
        if not usable or given or x.data is not None:
            return x
        if not any(x.name in n.outputs for n in self._nodes[self._mark :]):
            return x
        return self._rename_since_mark(x, name)

    def finish(
        self,
        name: str,
        inputs: Sequence[Tensor],
        outputs: Mapping[str, Tensor],
    ) -> Graph:
        """The finished graph; outputs whose tensor has another name get a copy."""
        self.begin("output")
        for wanted, tensor in outputs.items():
            self._enter(tensor)
            if wanted != tensor.name:
                self._add_output(wanted, self._tensors.get(tensor.name, tensor))
        return Graph(
            name,
            dict(self._tensors),
            tuple(self._nodes),
            tuple(t.name for t in inputs),
            tuple(outputs),
            dict(self.states),
            tuple(self._notes),
            given_bytes=self._given_bytes,
        )

    def _add_output(self, wanted: str, tensor: Tensor) -> None:
        """Adds a no-op node; passes remove it if it is not needed."""
        op = ops.Reshape(tensor.shape)
        out = Tensor(wanted, tensor.shape, tensor.dtype, tensor.quant)
        name = fresh_name(wanted if len(wanted) <= 40 else "output", self._node_names)
        self._nodes.append(Node(name, op, (tensor.name,), (wanted,)))
        self._tensors[wanted] = out

    def _rename_since_mark(self, x: Tensor, name: str) -> Tensor:
        """Renames `x` to `name` in the nodes since the mark; earlier nodes cannot refer to it."""
        for i in range(self._mark, len(self._nodes)):
            node = self._nodes[i]
            if x.name in node.outputs or x.name in node.inputs:
                own = node.name
                usable = len(name) <= 40 and not name.startswith(UNNAMED)
                if x.name in node.outputs and usable and name not in self._node_names:
                    own = fresh_name(name, self._node_names)
                inputs = tuple(name if n == x.name else n for n in node.inputs)
                outputs = tuple(name if n == x.name else n for n in node.outputs)
                self._nodes[i] = Node(own, node.op, inputs, outputs)
        del self._tensors[x.name]
        if x.name in self.limits:
            self.limits[name] = self.limits.pop(x.name)
        return self._add_tensor(replace(x, name=name))

    def _fold_node(
        self, node: Node, ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Tensor]:
        tensors = {t.name: t for t in (*ins, *outs) if t is not None}
        values = {t.name: t.data for t in ins if t is not None and t.data is not None}
        with np.errstate(all="ignore"):
            results = run_node(node, tensors, values)
        self._computed_bytes += sum(v.nbytes for v in results)
        kept = isinstance(node.op, ops.Cast | ops.Convert)
        sparse = kept and any(t.sparse for t in ins if t is not None)
        return [
            replace(t, data=np.ascontiguousarray(v).reshape(t.shape), sparse=sparse)
            for t, v in zip(outs, results, strict=True)
        ]

    @property
    def _most_computed(self) -> int:
        return max(COMPUTED_BYTES, _COMPUTED_GROWTH * self._given_bytes)

    def _may_compute(self, size: int) -> bool:
        """Whether `size` more bytes of constants are in proportion to the file's; else they are
        computed on the board."""
        return self._computed_bytes + size <= self._most_computed

    def _enter(self, t: Tensor | None) -> None:
        """Makes an operand part of the graph if it is a constant; others already are."""
        if t is not None and t.data is not None:
            self._tensors[t.name] = t

    def _add_tensor(self, t: Tensor) -> Tensor:
        if self._given_bytes + self._computed_bytes > _CONSTANT_LIMIT:
            raise ShapeError(
                f"expected constants of at most {_CONSTANT_LIMIT >> 20} MiB in total, found more"
            )
        if t.data is None:
            self._tensors[t.name] = t
        else:
            self._constants.add(t.name)
        self._taken.add(t.name)
        return t

    def _applicable_quant(self, dtype: DType, quant: Quant | None) -> Quant | None:
        return quant if dtype.is_quantized or dtype in (DType.I16, DType.I32) else None

    def _charge_activation(self, shape: Shape, dtype: DType) -> None:
        if any(d < 0 for d in shape) or len(shape) > _RANK_LIMIT:
            raise ShapeError(
                f"expected at most {_RANK_LIMIT} dimensions of at least 0, found {list(shape)}"
            )
        need_elements(shape)
        self._bytes += math.prod(shape) * dtype.bytes
        if self._bytes > _BYTES_LIMIT:
            raise ShapeError(
                f"expected activations of at most {_BYTES_LIMIT >> 30} GiB in total, found more"
            )
