"""User options for inputs, for information that the files lack."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from edgekit.host.compiler.inputs.metadata import InputNotes


@dataclass(frozen=True)
class InputOptions:
    """`notes` are the model's own metadata; all other options override them.

    A real value is (pixel - mean) / scale. `sample_rate` is the model's; with `resample`, sound
    with another rate is converted.
    """

    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    channels: Literal["rgb", "bgr"] = "rgb"
    layout: Literal["nhwc", "nchw"] | None = None
    sample_rate: int | None = None
    resample: bool = False
    notes: InputNotes = field(default_factory=InputNotes)

    @property
    def scaling(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and scale; both empty if unknown."""
        mean, scale = self.mean or self.notes.mean, self.scale or self.notes.scale
        if not (mean or scale):
            return (), ()
        return mean or (0.0,), scale or (1.0,)

    @property
    def rate(self) -> int | None:
        """The model's sample rate in Hz; None if unknown."""
        return self.sample_rate or self.notes.sample_rate
