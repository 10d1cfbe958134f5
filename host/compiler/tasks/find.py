"""Finds a model's task: in the metadata of its file, or by the shapes of its outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.task import (
    CLASSIFY,
    CROP,
    DETECT,
    KINDS,
    POSE,
    SEGMENT,
    STRETCH,
    TaskSpec,
)
from edgekit.host.compiler.inputs import ModelNotes, postprocessed, read_notes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.coco import COCO
from edgekit.host.compiler.tasks.ends import Ends, image_of
from edgekit.host.compiler.tasks.faces import blaze_face, ultra_face
from edgekit.host.compiler.tasks.grids import raw_grids
from edgekit.host.compiler.tasks.heads import Head
from edgekit.host.compiler.tasks.hub import Config, read_config
from edgekit.host.compiler.tasks.poses import PERSON_POINTS, pose_heads
from edgekit.host.compiler.tasks.queries import joined_queries, separate_queries
from edgekit.host.compiler.tasks.segments import KNOWN, class_map
from edgekit.host.compiler.tasks.small import fastest_det, nano_det
from edgekit.host.compiler.tasks.ssd import postprocessed_ssd, separate_ssd
from edgekit.host.compiler.tasks.ultralytics import Ultralytics, read_ultralytics
from edgekit.host.compiler.tasks.yolo import (
    anchor_free,
    anchored,
    end_to_end,
    one_box_of_a_cell,
    with_masks,
)
from edgekit.host.errors import InputError

DETECTIONS, POSES, SEGMENTS = "detections", "poses", "segments"
_STATED = {"segment": DETECT}  # Ultralytics' instances: their boxes, without masks
_IMAGENET = (1000, 1001)  # classes, without and with a background
_RECOGNIZERS = (
    anchor_free,
    with_masks,
    anchored,
    end_to_end,
    one_box_of_a_cell,
    raw_grids,
    fastest_det,
    nano_det,
    blaze_face,
    ultra_face,
    separate_ssd,
    separate_queries,
    joined_queries,
)


@dataclass(frozen=True)
class Prepared:
    """A graph with the output of its task, if it has one; `source` says where the task is from."""

    graph: Graph
    task: TaskSpec | None = None
    source: str = ""


@dataclass(frozen=True)
class _Model:
    """What is known of a model: `own` and `notes` by its file, `config` by files next to it."""

    path: Path
    ends: Ends
    own: Ultralytics
    notes: ModelNotes
    config: Config
    options: CompileOptions

    def asks_for(self, task: str) -> bool:
        """Whether the options or the file name the task."""
        named = self.options.task if self.options.task in KINDS else ""
        stated = _STATED.get(self.own.task, self.own.task)
        return task == (named or (DETECT if self.options.head else stated))

    def labels(self, count: int) -> tuple[str, ...]:
        """The file's labels, if they are of so many classes; 0 if that is not known."""
        known = (self.own.labels, *self.notes.labels, self.config.labels)
        return max((each for each in known if count in (0, len(each))), key=len, default=())

    def pixels(self, labels: tuple[str, ...]) -> dict[str, Any]:
        """The range of pixels that is stated, as fields of a TaskSpec. Files next to the model
        count if the labels are theirs: they may be another model's."""
        stated = self.notes.inputs[0] if self.notes.inputs else None
        if stated is not None and (stated.mean or stated.scale):
            return {"mean": stated.mean, "scale": stated.scale}
        if not self.config.scale or labels != self.config.labels:
            return {}
        return {"mean": self.config.mean, "scale": self.config.scale}

    def source(self, labels: tuple[str, ...], otherwise: str) -> str:
        """Where the task is from."""
        if self.own.task:
            return "by the file's metadata"
        return "by config.json" if labels and labels == self.config.labels else otherwise


def with_task(path: Path, graph: Graph, options: CompileOptions) -> Prepared:
    """The graph of a model for the task that the options name, or that its file states.

    For "guess", a head that is recognized by the shapes of its outputs is enough. Raises
    InputError if the options name a task, or a head, that the outputs do not fit.
    """
    image = None if options.task == "none" else image_of(graph, path.suffix == ".tflite")
    if image is None:
        if options.task in KINDS:
            raise _misfit(options.task, graph, "an input of one picture")
        return Prepared(graph)
    ends = Ends(graph, image)
    model = _Model(path, ends, read_ultralytics(path), read_notes(path), read_config(path), options)
    guesses = options.task == "guess" and not (options.head or model.own.task)
    for task, make, expected in (
        (DETECT, _detector, "outputs of a known detector"),
        (POSE, _pose, "the output of a YOLO that finds poses"),
        (SEGMENT, _segmenter, "one output with the classes of all pixels, or scores of each class"),
        (CLASSIFY, _classifier, "one output with a score for each class"),
    ):
        if guesses or model.asks_for(task):
            made = make(model)
            if made is not None:
                return made
            if options.task == task:
                raise _misfit(task, graph, expected)
    return Prepared(graph)


def _detector(model: _Model) -> Prepared | None:
    heads = _find_heads(model.ends, postprocessed(model.path))
    if chosen := model.options.head:
        known = " or ".join(head.name for head in heads) or "no head"
        heads = [head for head in heads if head.name == chosen]
        if not heads:
            raise InputError(
                f"--head: expected {known} by the outputs, found {chosen}; leave it out"
            )
    heads = [head for head in heads if head.name == model.config.head] or heads
    if len(heads) > 1:
        return _undecided(model, heads)
    return _with_rows(model, DETECT, heads[0], "boxes", DETECTIONS) if heads else None


def _undecided(model: _Model, heads: Sequence[Head]) -> Prepared:
    *names, last = (head.name for head in heads)
    said = (
        f"the outputs may be of {', '.join(names)} or {last}, which decode boxes differently; name "
        f"the right one, as in --head {last}"
    )
    if model.options.task == DETECT:
        raise InputError(f"--task detect: {said}")
    note = f"finds no boxes: {said}"
    graph = model.ends.graph
    return Prepared(replace(graph, notes=(*graph.notes, note)), source=note)


def _pose(model: _Model) -> Prepared | None:
    stated = model.own.points
    for head in pose_heads(model.ends, stated if stated[0] else PERSON_POINTS):
        if stated[0] or model.asks_for(POSE) or head.classes == 1:
            return _with_rows(model, POSE, head, "poses", POSES)
    return None


def _with_rows(model: _Model, task: str, head: Head, found: str, output: str) -> Prepared:
    """The graph with the head's decoder behind it."""
    graph = model.ends.graph
    to = Appender(graph, output)
    name = _free_name(graph, output)
    made = to.with_output(head.rows(to), name)
    labels, proposed = model.labels(head.classes) or head.labels, ""
    if not labels and head.classes == len(COCO):
        labels, proposed = COCO, ", labels of COCO because there are 80 classes"
    pixels = {**head.pixels, **model.pixels(labels)}
    spec = TaskSpec(task, model.ends.image.name, name, labels=labels, **pixels)
    source = model.source(labels, f"because {head.what}")
    note = f"finds {found}, {source}{proposed}; --task none leaves the outputs as they are"
    return Prepared(replace(made, notes=(*made.notes, note)), spec, source + proposed)


def _segmenter(model: _Model) -> Prepared | None:
    """Unless that is asked for, labels of all channels, or a known number of channels for each
    pixel of the input must show that they are scores: they may be colors, or places of joints."""
    seen = class_map(model.ends)
    if seen is None:
        return None
    labels = model.labels(seen.classes) if seen.classes else ()
    is_known = seen.classes in KNOWN and seen.rows == model.ends.image.height
    if not (model.options.task == SEGMENT or labels or is_known):
        return None
    graph = model.ends.graph
    to = Appender(graph, SEGMENTS)
    name = _free_name(graph, SEGMENTS)
    made = to.with_output(seen.numbers(to), name)
    source = model.source(labels, f"because '{seen.tensor.name}' is a map of classes")
    if not labels and seen.classes in KNOWN:
        whose, labels = KNOWN[seen.classes]
        source += f", labels of {whose} because there are {seen.classes} classes"
    spec = TaskSpec(SEGMENT, model.ends.image.name, name, labels=labels, **model.pixels(labels))
    note = f"finds the classes of pixels, {source}; --task none leaves the outputs as they are"
    return Prepared(replace(made, notes=(*made.notes, note)), spec, source)


def _classifier(model: _Model) -> Prepared | None:
    """A single output whose elements are scores of classes. Unless it is asked for, labels, a
    softmax or the number of ImageNet's classes must show it: it may be an embedding."""
    ends, sure = model.ends, model.asks_for(CLASSIFY)
    scores = [t for t in ends.outputs if class_count(t.shape) > 1]
    if len(scores) != 1 or not (sure or len(ends.outputs) == 1):
        return None
    count = class_count(scores[0].shape)
    labels = model.labels(count)
    softmax = ends.is_from(scores[0].name, ops.Softmax.kind)
    if not (sure or labels or count in _IMAGENET or softmax):
        return None
    config = model.config
    fit = CROP if model.own.task or (labels == config.labels and config.crops) else STRETCH
    name = scores[0].name
    spec = TaskSpec(CLASSIFY, ends.image.name, name, fit, labels=labels, **model.pixels(labels))
    plain = "by the file's metadata" if labels else "because scores are of classes"
    source = model.source(labels, plain)
    return Prepared(ends.graph, spec, source)


def class_count(shape: Sequence[int]) -> int:
    """Length of a vector, whose other axes are 1 long; 0 for other shapes."""
    largest = max(shape, default=0)
    return largest if math.prod(shape) == largest else 0


def _free_name(graph: Graph, wanted: str) -> str:
    number, name = 1, wanted
    while name in graph.tensors or name in graph.output_names.values():
        number += 1
        name = f"{wanted}{number}"
    return name


def _misfit(task: str, graph: Graph, expected: str) -> InputError:
    ends = (f"'{n}' {list(graph.tensors[n].shape)}" for n in (*graph.inputs, *graph.outputs))
    return InputError(
        f"--task {task}: expected {expected}, found {', '.join(ends)}; leave the option out"
    )


def _find_heads(ends: Ends, results: Sequence[str]) -> list[Head]:
    """All heads that the outputs may be of; `results` of an operator that selects boxes decide."""
    if selected := list(postprocessed_ssd(ends, results)):
        return selected
    return [head for recognize in _RECOGNIZERS for head in recognize(ends)]
