"""What the compiler hands to the bundle: a library, its weights and a golden pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Golden:
    """One pair computed by the NumPy reference on the imported graph.

    tolerances[i] is the allowed max |difference| of output i; 0 for quantized outputs.
    """

    inputs: tuple[NDArray[Any], ...]
    outputs: tuple[NDArray[Any], ...]
    tolerances: tuple[float, ...]


@dataclass(frozen=True)
class Artifact:
    """A compiled model. `description` is ek_describe's JSON, `explain` is edgekit.explain/1."""

    model_name: str
    model_sha256: str
    library: bytes
    weights: bytes
    description: Mapping[str, Any]
    golden: Golden
    explain: Mapping[str, Any]
