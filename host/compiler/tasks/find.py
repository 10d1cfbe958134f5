"""Finds a model's task: in the metadata of its file, or by the shapes of its outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.device.runtime.agent.task import CLASSIFY, CROP, DETECT, KINDS, STRETCH, TaskSpec
from edgekit.host.compiler.inputs import ModelNotes, postprocessed, read_notes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.coco import COCO
from edgekit.host.compiler.tasks.ends import Ends, image_of
from edgekit.host.compiler.tasks.heads import Head
from edgekit.host.compiler.tasks.recognize import find_heads
from edgekit.host.compiler.tasks.ultralytics import Ultralytics, read_ultralytics
from edgekit.host.errors import InputError

DETECTIONS = "detections"
_GRAY = 114  # of Ultralytics' letterboxes
_IMAGENET = (1000, 1001)  # classes, without and with a background


@dataclass(frozen=True)
class Prepared:
    """A graph with the output of its task, if it has one; `source` says where the task is from."""

    graph: Graph
    task: TaskSpec | None = None
    source: str = ""


def with_task(model: Path, graph: Graph, options: CompileOptions) -> Prepared:
    """The graph of a model for the task that the options name, or that its file states.

    For "guess", a head that is recognized by the shapes of its outputs is enough. Raises
    InputError if the options name a task, or a head, that the outputs do not fit.
    """
    guess = options.task == "guess"
    image = None if options.task == "none" else image_of(graph, model.suffix == ".tflite")
    if image is None:
        if options.task in KINDS:
            raise _misfit(options.task, graph, "an input of one picture")
        return Prepared(graph)
    ends = Ends(graph, image)
    own, notes = read_ultralytics(model), read_notes(model)
    asked = options.task if options.task in KINDS else own.task
    if options.head:
        asked = DETECT
    if asked == DETECT or (guess and not asked):
        heads = _heads(ends, model, options)
        if len(heads) == 1:
            return _detector(ends, heads[0], own, notes)
        if heads and options.task == DETECT:
            raise InputError(f"--task detect: {_undecided(heads)}")
        if heads:
            note = f"finds no boxes: {_undecided(heads)}"
            return Prepared(replace(graph, notes=(*graph.notes, note)), source=note)
        if options.task == DETECT:
            raise _misfit(DETECT, graph, "outputs of a known detector")
    if asked == CLASSIFY or (guess and not asked):
        made = _classifier(ends, own, notes, sure=asked == CLASSIFY)
        if made is None and options.task == CLASSIFY:
            raise _misfit(CLASSIFY, graph, "one output with a score for each class")
        return made or Prepared(graph)
    return Prepared(graph)


def _heads(ends: Ends, model: Path, options: CompileOptions) -> list[Head]:
    """The heads that the outputs may be of, or the one of them that the options name."""
    heads = find_heads(ends, postprocessed(model))
    if not options.head:
        return heads
    chosen = [head for head in heads if head.name == options.head]
    if not chosen:
        known = ", ".join(head.name for head in heads) or "no known head"
        raise InputError(f"--head: the outputs fit {known}, found {options.head}")
    return chosen


def _undecided(heads: Sequence[Head]) -> str:
    *names, last = (head.name for head in heads)
    return (
        f"the outputs may be of {', '.join(names)} or {last}, which decode boxes differently; name "
        f"the right one, as in --head {last}"
    )


def _detector(ends: Ends, head: Head, own: Ultralytics, notes: ModelNotes) -> Prepared:
    graph = ends.graph
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
    spec = TaskSpec(DETECT, ends.image.name, name, labels=labels, **pixels)
    source = "by the file's metadata" if own.task else f"because {head.what}"
    note = f"finds boxes, {source}{proposed}; --task none leaves the outputs as they are"
    return Prepared(replace(made, notes=(*made.notes, note)), spec, source + proposed)


def _classifier(ends: Ends, own: Ultralytics, notes: ModelNotes, sure: bool) -> Prepared | None:
    """A single output whose elements are scores of classes. Unless that is `sure`, labels, a
    softmax or the number of ImageNet's classes must show it: it may be an embedding."""
    scores = [t for t in ends.outputs if class_count(t.shape) > 1]
    if len(scores) != 1 or not (sure or len(ends.outputs) == 1):
        return None
    count = class_count(scores[0].shape)
    known = (own.labels, *notes.labels)
    labels = next((each for each in known if len(each) == count), ())
    softmax = ends.is_from(scores[0].name, ops.Softmax.kind)
    if not (sure or labels or count in _IMAGENET or softmax):
        return None
    fit = CROP if own.task else STRETCH
    mean, scale = ((), ()) if not notes.inputs else (notes.inputs[0].mean, notes.inputs[0].scale)
    spec = TaskSpec(
        CLASSIFY, ends.image.name, scores[0].name, fit, _GRAY, "rgb", mean, scale, labels
    )
    source = "by the file's metadata" if own.task or labels else "because scores are of classes"
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
