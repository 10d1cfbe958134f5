"""The result of building a model: library, weights, golden vectors, explanation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgekit.device.runtime.agent.shadow_spec import ShadowSpec
from edgekit.device.runtime.agent.specs import LossSpec, PlacementSpec
from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.host.common.content import Content
from edgekit.host.compiler.ir.types import Array


@dataclass(frozen=True, eq=False)
class Golden:
    """One input/output pair, computed by the NumPy reference on the imported graph.

    `tolerances` are the largest allowed |difference| per output: 0 if integers are exact. `margins`
    is empty, or has per output None or a u8 array of its shape that scales the tolerance per
    element: by 2^-value, or NOT_COMPARED.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    tolerances: tuple[float, ...]
    margins: tuple[Array | None, ...] = ()


@dataclass(frozen=True, eq=False)
class FloatArtifact:
    """The float model of a quantized one, as `spec` describes it. `weights` begin with those of the
    quantized model."""

    library: bytes
    weights: Content
    extras: tuple[str, ...]
    spec: ShadowSpec


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled model before it is bundled.

    `description` is ek_describe's parsed JSON; `explain` is the output of `compile --explain`
    (schema edgekit.explain/1); `notes` are decisions of the importer that users may want to change;
    `placements` are the fastest thread counts by the cost model; `extras` are required CPU features
    besides those of the profile; `loss` is the loss of accuracy relative to f32; `signature` is the
    one it computes, if the model was compiled by signature; `task` is what it is for, if known,
    and `files` what it needs for that on the board. `shadow` repeats its inferences there.
    """

    model_name: str
    model_sha256: str
    library: bytes
    weights: Content
    description: Mapping[str, Any]
    golden: Golden
    explain: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    placements: tuple[PlacementSpec, ...] = ()
    extras: tuple[str, ...] = ()
    loss: LossSpec | None = None
    signature: str = ""
    task: TaskSpec | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    shadow: FloatArtifact | None = None
