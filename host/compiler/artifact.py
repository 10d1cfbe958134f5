"""What building a model gives: library, weights, golden vectors, explanation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.device.runtime.agent.specs import LossSpec, PlacementSpec
from edgekit.host.compiler.ir.types import Array


@dataclass(frozen=True, eq=False)
class Golden:
    """One input/output pair, computed by the NumPy reference on the imported graph.

    `tolerances` hold the largest |difference| allowed per output: 0 where integers are exact.
    `margins` are empty, or per output None or the shares of that tolerance (u8, of its shape):
    2^-code of it, or NOT_COMPARED.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    tolerances: tuple[float, ...]
    margins: tuple[Array | None, ...] = ()


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled model before it is bundled. `description` is ek_describe's JSON, parsed;
    `explain` is what `compile --explain` writes (schema edgekit.explain/2), `notes` what the
    importer decided and a user may want otherwise; `placements` on how many threads it is
    fastest by the cost model; `extras` the CPU features that it needs beside those of the profile;
    `loss` what fewer bits cost its outputs beside f32."""

    model_name: str
    model_sha256: str
    library: bytes
    weights: bytes
    description: Mapping[str, Any]
    golden: Golden
    explain: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    placements: tuple[PlacementSpec, ...] = ()
    extras: tuple[str, ...] = ()
    loss: LossSpec | None = None
