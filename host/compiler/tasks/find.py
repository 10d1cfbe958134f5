"""Finds a model's task: in the metadata of its file, or by the shapes of its outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.device.runtime.agent.task import (
    CLASSIFY,
    CROP,
    DETECT,
    STRETCH,
    TaskSpec,
)
from edgekit.host.compiler.inputs import ModelNotes, postprocessed, read_notes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.coco import COCO
from edgekit.host.compiler.tasks.heads import Head, Image, find_head, image_of, selected_head
from edgekit.host.compiler.tasks.ultralytics import Ultralytics, read_ultralytics
from edgekit.host.errors import InputError

DETECTIONS = "detections"
_GRAY = 114  # of Ultralytics' letterboxes
_IMAGENET = (1000, 1001)  # classes, without and with a background
_MOVES = (ops.Reshape.kind, ops.Transpose.kind, ops.Cast.kind, ops.Quantize.kind)


@dataclass(frozen=True)
class Prepared:
    """A graph with the output of its task, if it has one; `source` says where the task is from."""

    graph: Graph
    task: TaskSpec | None = None
    source: str = ""


def with_task(model: Path, graph: Graph, options: CompileOptions) -> Prepared:
    """The graph of a model for the task that the options name, or that its file states.

    For "guess", a head that is recognized by the shapes of its outputs is enough. Raises
    InputError if the options name a task that the outputs do not fit.
    """
    guess = options.task == "guess"
    relative = model.suffix == ".tflite"
    image = None if options.task == "none" else image_of(graph, relative)
    if image is None:
        if options.task in (CLASSIFY, DETECT):
            raise _misfit(options.task, graph, "an input of one picture")
        return Prepared(graph)
    own, notes = read_ultralytics(model), read_notes(model)
    asked = options.task if options.task in (CLASSIFY, DETECT) else own.task
    if asked == DETECT or (guess and not asked):
        head = selected_head(graph, image, postprocessed(model)) or find_head(graph, image)
        if head is not None:
            return _detector(graph, image, head, own, notes)
        if options.task == DETECT:
            raise _misfit(DETECT, graph, "outputs of a known detector")
    if asked == CLASSIFY or (guess and not asked):
        made = _classifier(graph, image, own, notes, sure=asked == CLASSIFY)
        if made is None and options.task == CLASSIFY:
            raise _misfit(CLASSIFY, graph, "one output with a score for each class")
        return made or Prepared(graph)
    return Prepared(graph)


def _detector(
    graph: Graph, image: Image, head: Head, own: Ultralytics, notes: ModelNotes
) -> Prepared:
    to = Appender(graph, DETECTIONS)
    name = _free_name(graph, DETECTIONS)
    made = to.with_output(head.rows(to), name)
    labels, proposed = own.labels or max(notes.labels, key=len, default=()), ""
    if head.classes and len(labels) != head.classes:
        labels = ()
    if head.labels:
        labels = head.labels
    elif not labels and head.classes == len(COCO):
        labels, proposed = COCO, ", labels of COCO because there are 80 classes"
    pixels = dict(head.pixels)
    if notes.inputs and (notes.inputs[0].mean or notes.inputs[0].scale):
        pixels |= {"mean": notes.inputs[0].mean, "scale": notes.inputs[0].scale}
    spec = TaskSpec(DETECT, image.name, name, labels=labels, **pixels)
    source = "by the file's metadata" if own.task else f"because {head.what}"
    note = f"finds boxes, {source}{proposed}; --task none leaves the outputs as they are"
    return Prepared(replace(made, notes=(*made.notes, note)), spec, source + proposed)


def _classifier(
    graph: Graph, image: Image, own: Ultralytics, notes: ModelNotes, sure: bool
) -> Prepared | None:
    """A single output whose elements are scores of classes. Unless that is `sure`, labels, a
    softmax or the number of ImageNet's classes must show it: it may be an embedding."""
    scores = [t for t in map(graph.tensors.__getitem__, graph.outputs) if _class_count(t) > 1]
    if len(scores) != 1 or not (sure or len(graph.outputs) == 1):
        return None
    count = _class_count(scores[0])
    known = (own.labels, *notes.labels)
    labels = next((each for each in known if len(each) == count), ())
    if not (sure or labels or count in _IMAGENET or _is_softmax(graph, scores[0].name)):
        return None
    fit = CROP if own.task else STRETCH
    mean, scale = ((), ()) if not notes.inputs else (notes.inputs[0].mean, notes.inputs[0].scale)
    spec = TaskSpec(CLASSIFY, image.name, scores[0].name, fit, _GRAY, "rgb", mean, scale, labels)
    source = "by the file's metadata" if own.task or labels else "because scores are of classes"
    return Prepared(graph, spec, source)


def _is_softmax(graph: Graph, name: str) -> bool:
    """Whether the values come from a softmax, possibly moved or converted."""
    producer = graph.producer()
    while name in producer and producer[name].op.kind in (*_MOVES, ops.Softmax.kind):
        if producer[name].op.kind == ops.Softmax.kind:
            return True
        name = producer[name].inputs[0] or ""
    return False


def _class_count(tensor: Tensor) -> int:
    """Length of a tensor that is a vector apart from dimensions of 1; 0 otherwise."""
    largest = max(tensor.shape, default=0)
    return largest if math.prod(tensor.shape) == largest else 0


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
