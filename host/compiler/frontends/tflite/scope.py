"""One run of a TFLite subgraph, and the import it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgekit.host.compiler.frontends.common.bounded import Bounded
from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.tflite.schema import FileSubgraph, TfliteFile
from edgekit.host.compiler.frontends.tflite.tensors import TensorTable
from edgekit.host.compiler.ir.types import State, Tensor

Complex = tuple[Tensor, Tensor]  # real and imaginary part


class Import(Protocol):
    """State shared by all runs of subgraphs."""

    model: TfliteFile
    builder: GraphBuilder
    bounded: Bounded
    states: dict[str, State]
    initializing: bool  # inside CALL_ONCE, which initializes variables

    def call(self, number: int, args: Sequence[Tensor], label: str) -> list[Tensor]:
        """Inlines subgraph `number` and returns its outputs."""

    def charge(self, work: int) -> None:
        """Adds to the work so far; raises `InputError` if it is too much."""


class TfliteScope:
    """One run of a subgraph: its tensors, and the variables its handles refer to."""

    def __init__(self, importer: Import, graph: FileSubgraph, tensors: TensorTable) -> None:
        self.importer = importer
        self.builder = importer.builder
        self.graph = graph
        self.tensors = tensors
        self.handles: dict[int, str] = {}  # resource tensor → state
        self.complexes: dict[int, Complex] = {}
