"""User options for inputs, for information that the files lack."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from edgekit.device.runtime.agent.task import BGR, LINEAR, STRETCH, TaskSpec
from edgekit.host.compiler.inputs.metadata import InputNotes


@dataclass(frozen=True)
class InputOptions:
    """`notes` are the model's own metadata; all other options override them.

    A real value is (pixel - mean) / scale. `sample_rate` is the model's; with
    `resample`, sound with another rate is converted. `fit`, `fill`, `zoom` and `filter` are
    TaskSpec's; without a task, pictures are resized by Pillow's bilinear filter.
    """

    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    channels: Literal["rgb", "bgr"] = "rgb"
    layout: Literal["nhwc", "nchw"] | None = None
    sample_rate: int | None = None
    resample: bool = False
    notes: InputNotes = field(default_factory=InputNotes)
    fit: str = STRETCH
    fill: int = 0
    zoom: float = 1.0
    filter: str = LINEAR

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

    def for_task(self, task: TaskSpec) -> InputOptions:
        """The same options, with the pixels that a task states where the user states none."""
        given = self.mean or self.scale
        return replace(
            self,
            mean=self.mean if given else task.mean,
            scale=self.scale if given else task.scale,
            channels="bgr" if BGR in (task.channels, self.channels) else "rgb",
            fit=task.fit,
            fill=task.fill,
            zoom=task.zoom,
            filter=task.filter,
        )
