"""What `edgekit run` found in a file."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.device.runtime.agent.dictation import Subtitle
from edgekit.device.runtime.agent.fitting import Placed, Pose, poses_of
from edgekit.device.runtime.agent.images import image_of
from edgekit.device.runtime.agent.instances import Instance, instances_of
from edgekit.device.runtime.agent.lines import Line
from edgekit.device.runtime.agent.listening import Heard
from edgekit.device.runtime.agent.pages import TextLine
from edgekit.device.runtime.agent.rotated import Rotated, rotated_of
from edgekit.device.runtime.agent.segments import Segments, segments_of
from edgekit.device.runtime.agent.task import IMAGE, INSTANCES, OBB, SEGMENT, TaskSpec
from edgekit.host.cli.boxes import draw
from edgekit.host.cli.classes import Class
from edgekit.host.cli.instances import run_lengths, tinted
from edgekit.host.cli.results import Outputs
from edgekit.host.cli.segments import overlay, write_image

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_TITLE = 30  # columns of a text


class Sound(NamedTuple):
    """A file with what a voice says, and its seconds."""

    file: Path
    seconds: float


class Made(NamedTuple):
    """The size of a picture that a model made, and the rows and columns of its input."""

    width: int
    height: int
    rows: int
    columns: int


@dataclass(frozen=True)
class FileResult:
    """Result for a file: `classes` of each run of a classifier; `poses` of a detector, which has
    boxes without points, and `segments` (None for other models). `image` is of a picture
    that was made. `drawn` is the picture with what was found, if it was written."""

    file: Path
    latencies_ms: tuple[float, ...]
    classes: tuple[list[Class], ...]
    poses: tuple[Pose, ...] | None = None
    segments: Segments | None = None
    instances: tuple[Instance, ...] | None = None
    rotated: tuple[Rotated, ...] | None = None
    size: tuple[int, int] = (0, 0)
    drawn: Path | None = None
    heard: tuple[Heard, ...] | None = None
    vector: tuple[float, ...] | None = None
    line: Line | None = None
    lines: tuple[TextLine, ...] | None = None
    text: str | None = None
    spoken: Sound | None = None
    subtitles: tuple[Subtitle, ...] | None = None
    image: Made | None = None

    @property
    def title(self) -> str:
        """What it is of, in few columns."""
        return self.file.name if self.text is None else textwrap.shorten(self.text, _TITLE)

    @property
    def outlines(self) -> list[Any]:
        """Masks of the instances or polygons of the rotated boxes, in COCO's form."""
        rings = [[[v for corner in each.corners for v in corner]] for each in self.rotated or ()]
        return [run_lengths(each, self.size) for each in self.instances or ()] or rings


class PlacedPicture(NamedTuple):
    """A picture, its place in the model's input, and the rows and columns of that."""

    picture: Picture
    placed: Placed
    size: tuple[int, int]


def with_findings(
    found: FileResult,
    outputs: Outputs,
    where: PlacedPicture,
    task: TaskSpec,
    labels: Sequence[str],
    target: Path | None,
) -> FileResult:
    """The result with what the task finds in a picture, which is drawn to the `target`."""
    values = outputs[task.output]
    drawn = replace(found, drawn=target)
    if task.kind == IMAGE:
        _, *shape = values.shape
        image = image_of(values.tobytes(), (shape[0], shape[1], shape[2]), where.size, where.placed)
        if target is not None:
            write_image(image, target)
        return replace(drawn, image=Made(image.width, image.height, *where.size))
    if task.kind == SEGMENT:
        _, rows, columns = values.shape
        made = segments_of(
            values.tobytes(), (rows, columns), where.size, task, where.placed, labels
        )
        if target is not None:
            overlay(where.picture, made, target)
        return replace(drawn, segments=made)
    flat, width = values.reshape(-1).tolist(), values.shape[-1]
    if task.kind == INSTANCES:
        return _with_instances(drawn, outputs, where, task, labels)
    if task.kind == OBB:
        rotated = rotated_of(flat, width, task, where.placed, labels)
        poses = [Pose(each.box, ()) for each in rotated]
        drawn = replace(drawn, rotated=tuple(rotated))
    else:
        poses = poses_of(flat, width, task, where.placed, labels)
    if target is not None:
        draw(where.picture, poses, target, drawn.rotated)
    return replace(drawn, poses=tuple(poses))


def _with_instances(
    found: FileResult,
    outputs: Outputs,
    where: PlacedPicture,
    task: TaskSpec,
    labels: Sequence[str],
) -> FileResult:
    rows, masks = outputs[task.output], outputs[task.masks]
    instances = instances_of(
        rows.reshape(-1).tolist(),
        rows.shape[-1],
        masks.tobytes(),
        (masks.shape[1], masks.shape[2]),
        where.size,
        task,
        where.placed,
        labels,
    )
    poses = tuple(Pose(each.box, ()) for each in instances)
    if found.drawn is not None:
        draw(tinted(where.picture, instances), poses, found.drawn)
    return replace(found, poses=poses, instances=tuple(instances), size=where.picture.size)
