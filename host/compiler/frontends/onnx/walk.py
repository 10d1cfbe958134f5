"""Walks the nodes of an ONNX graph and of its subgraphs and functions, in order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from edgekit.host.compiler.frontends.common.bounded import Bounded
from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.common.names import shown_name
from edgekit.host.compiler.frontends.common.refusal import (
    MisfitInputError,
    UnsupportedError,
    at_operator,
    refuse,
    unsupported,
)
from edgekit.host.compiler.frontends.onnx.along import product_of, window_of
from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.doubles import computed
from edgekit.host.compiler.frontends.onnx.file import (
    AttributeOf,
    FileFunction,
    FileGraph,
    FileNode,
    names_read,
)
from edgekit.host.compiler.frontends.onnx.old import moved_operands
from edgekit.host.compiler.frontends.onnx.operators import MADE, ROWS
from edgekit.host.compiler.frontends.onnx.rules import RULES, axis_of
from edgekit.host.compiler.frontends.onnx.types import (
    Floats,
    Texts,
    Value,
    makes_bfloat16,
    moves_texts,
    plain,
    texts_of,
)
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, MisfitError, ShapeError, Tensor
from edgekit.host.errors import InputError

_DEPTH = 32  # nesting of subgraphs and functions
MOST_NODES = 100_000  # after expanding loops, branches and functions


@dataclass(frozen=True, eq=False)
class OnnxScope:
    """The names visible to nodes of a graph: its own, then those of the enclosing graph."""

    constants: Mapping[str, Array]
    opset: int
    values: dict[str, Value | None]
    outer: OnnxScope | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)  # of the enclosing function


class Walk:
    """The state of one import: the builder, and the depth and amount of work so far, which is at
    most `most_nodes`."""

    def __init__(
        self,
        builder: GraphBuilder,
        functions: Mapping[str, FileFunction],
        most_nodes: int = MOST_NODES,
        most_rows: int | None = None,
        spare: int = 0,
    ) -> None:
        self._builder = builder
        self._functions = functions
        self._most_nodes = most_nodes
        self._depth = 0
        self._steps = 0
        self.floats = Floats(builder)
        self.bounded = Bounded(builder, RULES, most_rows, spare)
        self._known: dict[tuple[int, str], Value] = {}

    def nodes(self, nodes: Sequence[FileNode], outputs: Collection[str], scope: OnnxScope) -> None:
        """Adds the nodes of a graph with these outputs."""
        last = {name: at for at, node in enumerate(nodes) for name in names_read(node)}
        for at, node in enumerate(nodes):
            try:
                self._add_node(node, scope)
            except (ShapeError, InputError) as error:
                raise _error_type(error)(at_operator(node.shown, error)) from error
            if self._depth == 0:  # steps of an unrolled loop share their constants
                read = {name for name in names_read(node) if last[name] == at}
                self._release(read.difference(outputs), scope)

    def _release(self, names: Iterable[str], scope: OnnxScope) -> None:
        """Releases constants that no later node reads."""
        for name in names:
            value = scope.values.get(name)
            if isinstance(value, Tensor) and value.data is not None:
                self._builder.release(value)
                scope.values[name] = None

    def value(self, name: str, scope: OnnxScope) -> Value | None:
        """Resolves `name`; None is an absent optional value."""
        at: OnnxScope | None = scope
        while at is not None:
            if name in at.values:
                return at.values[name]
            if name in at.constants:
                return self._constant_tensor(at.constants, name)
            at = at.outer
        raise InputError(
            f"expected {shown_name(name)} to be a constant, an input or the output of an "
            "earlier operator, found none of these"
        )

    def _constant_tensor(self, constants: Mapping[str, Array], name: str) -> Value:
        key = (id(constants), name)
        if key not in self._known:
            value = constants[name]
            is_text = value.dtype.kind == "O"
            make = partial(texts_of, self._builder) if is_text else self.floats.constant
            self._known[key] = make(value)
        return self._known[key]

    def _add_node(self, node: FileNode, scope: OnnxScope) -> None:
        label = _node_prefix(node)
        self._builder.begin(label)
        ins = self._operands(node, scope)
        axis = axis_of(node.op, node.attributes, scope.opset, ins)
        product = product_of(node, ins)
        given = self.bounded.operands(node.op, ins, axis, product)
        wide, made = self._emit_node(node, given, scope)
        wanted = list(node.outputs)
        while wanted and not wanted[-1]:
            wanted.pop()
        if len(wanted) > len(made):
            raise ShapeError(f"expected at most {len(made)} outputs, found {len(wanted)}")
        renamed: dict[str, Tensor] = {}
        for name, value, source in zip(wanted, made, wide, strict=False):
            if not name:
                continue
            if name in scope.values or name in scope.constants:
                raise ShapeError(
                    f"expected to write each tensor once, found {shown_name(name)} written before"
                )
            if isinstance(value, Tensor):
                converted = value is not source
                if value.name not in renamed:
                    renamed[value.name] = self.floats.rename(value, name)
                value = renamed[value.name]
                if converted and isinstance(source, Tensor):
                    self.floats.remember(value, source)
            elif isinstance(value, Texts):
                value = replace(value, places=self.floats.rename(value.places, name))
            scope.values[name] = value
        names = [scope.values[n] if n else None for n in wanted]
        names += made[len(names) :]
        self.bounded.follow(
            node.op, ins, zip(wide, names, strict=True),
            lambda x: self._emit_node(node, x, scope)[1], axis, partial(window_of, node, ins),
            product,
        )  # fmt: skip

    def _operands(self, node: FileNode, scope: OnnxScope) -> list[Value | None]:
        """The node's operands in the form of its newest opset."""
        ins = [self.value(n, scope) if n else None for n in node.inputs]
        given = {k: _resolve_attribute(v, scope) for k, v in node.attributes.items()}
        for place, number in moved_operands(node.op, scope.opset, given).items():
            ins += [None] * (place + 1 - len(ins))
            if ins[place] is None:
                ins[place] = self.floats.constant(number)
        return ins

    def _emit_node(
        self, node: FileNode, ins: Sequence[Value | None], scope: OnnxScope
    ) -> tuple[Sequence[Value | None], Sequence[Value | None]]:
        """The node's outputs as its handler returns them, and converted to the file's types."""
        resolved = {k: _resolve_attribute(v, scope) for k, v in node.attributes.items()}
        function = self._functions.get(node.op)
        if function is not None:
            found = self._emit_subgraph(
                function.graph, ins, _function_scope(function, resolved, scope.opset)
            )
            return found, found
        if any(isinstance(v, Texts) for v in ins) and moves_texts(node.op, resolved):
            moved = self._move_texts(node, ins, scope)
            return moved, moved
        folded = computed(node.op, ins, scope.opset)
        if folded is not None:
            constant = [self._builder.constant(folded)]
            return constant, constant
        rows = ROWS if node.op in ROWS else MADE
        refuse(unsupported([(str(node.index), node.op)], rows))

        def run(graph: FileGraph, given: Sequence[Value | None]) -> Sequence[Value | None]:
            inner = OnnxScope(graph.constants, scope.opset, {}, scope, scope.attributes)
            return self._emit_subgraph(graph, given, inner)

        seen = self.floats.operands(node.op, ins)
        own = {k: plain(v) for k, v in resolved.items()}
        call = OnnxCall(
            node, own, seen, scope.opset, self._builder, run, self.bounded,
            lambda name: self.value(name, scope), self.floats.bfloat16,
        )  # fmt: skip
        made = rows[node.op](call)
        wide = made if isinstance(made, Sequence) else [made]
        if makes_bfloat16(resolved):
            self.floats.mark(wide)
        return wide, self.floats.results(node.op, ins, seen, wide)

    def _move_texts(
        self, node: FileNode, ins: Sequence[Value | None], scope: OnnxScope
    ) -> Sequence[Value | None]:
        """A node that moves strings moves their places in the vocabulary."""
        known = {v.vocabulary for v in ins if isinstance(v, Texts)}
        if len(known) > 1:
            raise ShapeError("expected strings of one list of labels, found several lists")
        places = [v.places if isinstance(v, Texts) else v for v in ins]
        made = places[:1] if node.op == "Cast" else self._emit_node(node, places, scope)[1]
        (vocabulary,) = known
        return [Texts(v, vocabulary) if isinstance(v, Tensor) else v for v in made]

    def rounded(self, x: Tensor) -> Tensor:
        """Rounds an output declared as bfloat16, because operators compute in f32."""
        if x.dtype is not DType.F32:
            return x

        def run(given: Sequence[Any]) -> list[Tensor]:
            return [self._builder.emit(ops.RoundBfloat16(), given[0])]

        made = run([x])
        self.bounded.follow("Cast", [x], [(made[0],)], run)
        return made[0]

    def _emit_subgraph(
        self, graph: FileGraph, given: Sequence[Value | None], scope: OnnxScope
    ) -> Sequence[Value | None]:
        """Emits a subgraph for the given inputs and returns its outputs."""
        self._steps += len(graph.nodes) + 1
        if self._depth >= _DEPTH or self._steps > self._most_nodes:
            raise InputError(
                f"expected functions, loops and branches of at most {self._most_nodes} operators "
                f"in total, nested at most {_DEPTH} deep, found more"
            )
        if len(given) > len(graph.inputs):
            raise ShapeError(f"expected at most {len(graph.inputs)} inputs, found {len(given)}")
        absent = [None] * (len(graph.inputs) - len(given))
        scope.values.update(zip(graph.inputs, [*given, *absent], strict=True))
        self._depth += 1
        try:
            self.nodes(graph.nodes, graph.outputs, scope)
        finally:
            self._depth -= 1
        return [self.value(name, scope) for name in graph.outputs]


def _error_type(error: ShapeError | InputError) -> type[InputError]:
    """The error type with which an error in a subgraph is reported at its node."""
    if isinstance(error, UnsupportedError | MisfitInputError):
        return type(error)
    return MisfitInputError if isinstance(error, MisfitError) else InputError


def _resolve_attribute(value: Any, scope: OnnxScope) -> Any:
    """The value of an attribute; inside a function it may refer to the caller's attributes."""
    return scope.attributes.get(value.name) if isinstance(value, AttributeOf) else value


def _function_scope(function: FileFunction, given: Mapping[str, Any], opset: int) -> OnnxScope:
    """The scope of a function body: only its inputs and attributes."""
    known = {k: v for k, v in given.items() if v is not None}
    return OnnxScope({}, function.opset or opset, {}, None, {**function.attributes, **known})


def _node_prefix(node: FileNode) -> str:
    """A prefix for the names of a node's tensors."""
    stem = node.outputs[0] if node.outputs else ""
    short = 0 < len(stem) <= 40 and stem.isascii() and stem.isprintable()
    return stem if short else f"{node.op.lower()[:40]}_{node.index}"
