"""How a model is to be compiled: what a user may ask for beside the model and the board."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Order = Literal["search", "import", "memory"]


@dataclass(frozen=True)
class CompileOptions:
    """`shapes`: of inputs that an ONNX model leaves open, by name.

    `order`: what the operators' order is searched for: time ("search") or peak memory ("memory");
    "import" keeps the importer's. `random_seed` makes a search repeatable.

    `memory_limit`: bytes that an operator, and the arena, may take; None: what the board has.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    order: Order = "search"
    random_seed: int = 0
    memory_limit: int | None = None

    @property
    def is_default(self) -> bool:
        """Whether nothing was asked for."""
        return self == DEFAULT_OPTIONS


DEFAULT_OPTIONS = CompileOptions()
