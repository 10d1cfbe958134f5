"""What the transforms compile for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.compiler.ir.types import Array, Graph
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.kb.targets.board import BoardProfile

HALF_LOSS = 0.02  # relative to an output's largest value: the limit of --precision auto


@dataclass(frozen=True)
class Target:
    """The target of the transforms.

    `limit`: memory in bytes; `table`: the knowledge base of methods; `golden`: the cache of golden
    outputs; `samples`: graph inputs to which low-bit weights are fitted; `fitted`: a graph of the
    same products that was fitted to samples, whose weights are taken; `half_loss`: the limit of
    --precision auto, relative to an output's largest value.
    """

    board: BoardProfile
    options: CompileOptions
    limit: int | None
    table: KnowledgeBase
    golden: Path
    samples: Sequence[Mapping[str, Array]] = ()
    half_loss: float = HALF_LOSS
    fitted: Graph | None = None
