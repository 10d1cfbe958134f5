"""How a model is to be compiled: what a user may ask for beside the model and the board."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CompileOptions:
    """`shapes`: of inputs that an ONNX model leaves open, by name."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def is_default(self) -> bool:
        """Whether nothing was asked for."""
        return self == DEFAULT_OPTIONS


DEFAULT_OPTIONS = CompileOptions()
