"""The state shared by lowering rules: graph, ISA, packed weights, scratch buffers."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from edgekit.host.common.content import Content, PagedBytes
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.ir.align import ALIGN, round_up, strides_of
from edgekit.host.compiler.ir.by_operator import ByOperator
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node, Tensor
from edgekit.host.compiler.ir.views import RowSlice
from edgekit.host.compiler.lowering.choice import Choice
from edgekit.host.compiler.lowering.plan import (
    Alias,
    KeptWeights,
    Kernel,
    KernelCall,
    LoopCall,
    StateSlot,
    Value,
    Weights,
)
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile
from edgekit.kb.targets.isa import Isa

# Memory for transformed weights: none, little and none of it in the arena, or what gains most time
Spending = Literal["none", "little", "freely"]


Panels = tuple[int, int | None]

_MOST_IN_MEMORY = 32 << 20  # bytes of constants


class UnsupportedFormError(ValueError):
    """No kernel supports this form of an operator; `lower` adds the operator's name."""


class WeightsFile:
    """Collects packed constants; duplicates are stored once, each aligned to a cache line.

    `panels` maps names of constants to how variants before this one packed them for a single row:
    columns of a panel, and steps of k in a block or None. With `kept` false, there are only places,
    for plans that are compared: `bytes` is empty.
    """

    def __init__(self, kept: bool = True) -> None:
        self._kept, self._size = kept, 0
        self.panels: dict[str, Panels] = {}
        self._packed: dict[str, Panels] = {}
        self._data = PagedBytes(cache_folder(), _MOST_IN_MEMORY)
        self._known: dict[bytes, int] = {}
        self._filled: dict[bytes, tuple[int, Weights]] = {}

    def add(self, array: Array) -> Weights:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        key = hashlib.sha256(data).digest()
        if key not in self._known:
            self._known[key], size = self._size, round_up(max(data.nbytes, 1), ALIGN)
            self._size += size
            if self._kept:
                self._data.append(data)
                self._data.append(bytes(size - data.nbytes))
        return Weights(self._known[key])

    def add_filled(self, value: Array, count: int) -> Weights:
        """`count` times `value`: the longest such run so far, or a new one."""
        key = value.tobytes()
        if count > self._filled.get(key, (-1,))[0]:
            self._filled[key] = count, self.add(np.full(count, value))
        return self._filled[key][1]

    def note_panels(self, name: str, panels: Panels) -> None:
        """Later variants read the constant as it is packed for a single row here."""
        self._packed[name] = panels

    def end_variant(self) -> None:
        self.panels = {**self.panels, **self._packed}

    @property
    def stored(self) -> int:
        """Bytes of the constants so far; 0 if there are only places."""
        return len(self._data)

    def bytes(self) -> Content:
        """The constants so far, of a large model in pages of a file."""
        return self._data.view()


@dataclass(frozen=True, eq=False)
class LookUp:
    """A function of quantized values that is fused into the product before it.

    `nodes` are the fused nodes, `out` their result. `tables` holds the function's values: [1, 256],
    or [channels, 256] if it depends on the channel.
    """

    nodes: tuple[str, ...]
    out: str
    tables: Array


@dataclass
class Context:
    """State of one lowering; rules read the graph and add weights, scratch and aliases.

    `table` is the board's knowledge base, queried for methods on `threads` threads. `choices` maps
    nodes to the decisions on their methods, `of_groups` to decisions made for a group. `parts` are
    tensors computed in place within wider ones; `look_ups` are fused functions by product name. In
    `strips`, kernels are called for a few rows at a time, so weights are stored as computed with.
    `transformed` has the convolutions by Winograd's transform.
    """

    graph: Graph
    isa: Isa
    board: BoardProfile
    table: KnowledgeBase
    threads: int = 1
    weights: WeightsFile = field(default_factory=WeightsFile)
    scratch_bytes: dict[str, int] = field(default_factory=dict)
    aliases: dict[str, Alias] = field(default_factory=dict)
    states: dict[str, StateSlot] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)
    of_groups: Mapping[str, Choice] = field(default_factory=dict)
    parts: Mapping[str, RowSlice] = field(default_factory=dict)
    look_ups: Mapping[str, LookUp] = field(default_factory=dict)
    strips: bool = False
    transformed: Mapping[str, KeptWeights] = field(default_factory=dict)

    def of_floats(self, dtype: DType) -> Context:
        """This lowering with the instruction set for f32 or f16 kernels."""
        if dtype is not DType.F16:
            return self
        return dataclasses.replace(self, isa=self.isa.of_half)

    @property
    def by_rule(self) -> Context:
        """This lowering without operator rows, so that methods are chosen analytically."""
        return dataclasses.replace(self, table=dataclasses.replace(self.table, operators=()))

    def tensor(self, name: str | None) -> Tensor:
        assert name is not None
        return self.graph.tensors[name]

    def pitch(self, name: str) -> int:
        """Elements between consecutive channel rows of a tensor in its buffer."""
        tensor = self.graph.tensors[name]
        if name in self.parts:
            return self.parts[name].pitch // tensor.dtype.bytes
        return tensor.shape[-1]

    def strides(self, name: str) -> tuple[int, ...]:
        """Byte strides of a tensor in its buffer."""
        tensor = self.graph.tensors[name]
        held = self.graph.tensors[self.parts[name].whole] if name in self.parts else tensor
        return strides_of(held.shape, tensor.dtype.bytes)

    def optional(self, node: Node, index: int) -> Tensor | None:
        name = node.inputs[index] if index < len(node.inputs) else None
        return None if name is None else self.graph.tensors[name]

    def constant(self, node: Node, index: int, what: str) -> Array:
        """The value of a constant input; raises InputError if it is computed."""
        tensor = self.tensor(node.inputs[index])
        if tensor.data is None:
            raise InputError(
                f"{self.graph.name}: operator {node.name} ({node.op.kind}): expected constant "
                f"{what}, found a computed tensor; export it as a constant"
            )
        return tensor.data

    def scratch(self, node: Node, size: int) -> Value:
        """Allocates a temporary of `size` bytes that lives during this node's step."""
        name = f"{node.name}:scratch{len(self.scratch_bytes)}"
        self.scratch_bytes[name] = size
        return Value(name)

    def kernel(
        self, name: str, source: str, header: str | None, args: str, **macros: str | int
    ) -> Kernel:
        """An instance named ek_<name>_<simd>; for `header` see Kernel."""
        items = tuple((key, str(value)) for key, value in macros.items())
        symbol = f"ek_{name}_{self.isa.simd}"
        if self.isa.simd != self.board.simd:
            items = (("EK_SIMD", f'"simd/{self.isa.simd}.h"'), *items)
        return Kernel(symbol, source, header, args, items)

    def unsupported(self, node: Node, found: str) -> InputError:
        return InputError(
            f"{self.graph.name}: operator {node.name} ({node.op.kind}): {found} is not supported "
            f"by edgekit's kernels; export the model in f32 or with 8-bit weights and activations"
        )


def padded(values: Array | Sequence[float], size: int, dtype: np.dtype[np.generic]) -> Array:
    """`values`, or its single value repeated, as a vector of `size` values padded with zeros."""
    v = np.asarray(values).reshape(-1)
    out = np.zeros(size, dtype)
    if v.size == 1:
        out[:] = v[0]
    else:
        out[: v.size] = v
    return out


Rule = Callable[[Context, Node], list[KernelCall] | list[KernelCall | LoopCall]]
lowers = ByOperator[Rule]()  # decorator that registers a lowering rule for operators
