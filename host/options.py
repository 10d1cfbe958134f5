"""How a model is to be compiled: what a user may ask for beside the model and the board."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from edgekit.host.errors import InputError

Order = Literal["search", "import", "memory"]
WeightBits = Literal["int8", "int4"]
Activations = Literal["dynamic-outlier"]


@dataclass(frozen=True)
class CompileOptions:
    """`shapes`: of inputs that an ONNX model leaves open, by name.

    `order`: what the operators' order is searched for: time ("search") or peak memory ("memory");
    "import" keeps the importer's. `random_seed` makes a search repeatable.

    `memory_limit`: bytes that an operator, and the arena, may take; None: what the board has.

    `weights`: what constant matrices are kept in; `activations`: how what they meet is quantized as
    it comes. One is not without the other.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    order: Order = "search"
    random_seed: int = 0
    memory_limit: int | None = None
    weights: WeightBits | None = None
    activations: Activations | None = None

    def __post_init__(self) -> None:
        if (self.weights is None) != (self.activations is None):
            found = "--weights" if self.weights else "--activations"
            raise InputError(
                "expected --weights int8 or int4 together with --activations dynamic-outlier, "
                f"found {found} alone; give both"
            )

    @property
    def is_default(self) -> bool:
        """Whether nothing was asked for."""
        return self == DEFAULT_OPTIONS


DEFAULT_OPTIONS = CompileOptions()
