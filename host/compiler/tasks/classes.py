"""Classifiers: a vector of scores, which pixels the model takes, and the labels of its classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edgekit.device.runtime.agent.task import CLASSIFY, CROP, LINEAR, STRETCH, TaskSpec
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.imagenet import imagenet_labels
from edgekit.host.compiler.tasks.known import KnownModel
from edgekit.host.compiler.tasks.prepared import Prepared, free_name, with_note, without_task
from edgekit.host.compiler.tasks.shares import SCORES, as_shares, both_shares, is_vector
from edgekit.host.compiler.tasks.usual_classes import usual_classes

_IMAGENET = (1000, 1001)  # classes, without and with a background
_SEX_SIZE, _SEX_OUTPUT = (96, 96, 3), {"fc1": (1, 3)}
_SEXES = ("female", "male")
_SEX_PIXELS: dict[str, Any] = {"mean": (127.5,), "scale": (128.0,)}
_OF_IMAGENET = ("", " for ImageNet")


def classifier(model: KnownModel) -> Prepared | None:
    """A single output whose elements are scores of classes. Unless it is asked for, labels, a
    softmax or the number of ImageNet's classes must show it: it may be an embedding."""
    if (made := _sex_of_face(model)) is not None:
        return made
    ends, config = model.ends, model.config
    scores = [t for t in ends.outputs if class_count(t.shape) > 1]
    if not scores and len(ends.outputs) == 1 and (made := _one_of_two(model)) is not None:
        return made
    count = class_count(scores[0].shape) if len(scores) == 1 else 0
    own = model.has_config_for(count)
    sure = model.asks_for(CLASSIFY) or (own and config.classifies)
    others = (t for t in ends.outputs if t not in scores)
    alone = all(t.elements == 1 and not t.dtype.is_float for t in others)  # the best class
    if not count or not (sure or (alone and ends.image.is_plausible)):
        return None
    labels = model.labels(count)
    if not (sure or labels) and is_vector(ends.graph, scores[0].name):
        return None
    usual = None if labels else usual_classes(model.path.stem, ends.image, count)
    softmax = ends.is_from(scores[0].name, ops.Softmax.kind)
    if not (sure or labels or count in _IMAGENET or softmax or usual):
        return None
    proposed: list[str] = []
    other = model.contradiction(count, labels)
    if not (labels or other) and count in _IMAGENET:
        labels = imagenet_labels(count)
        proposed.append(f"labels of ImageNet because there are {count} classes")
    pixels, whose = _pixels(model, count, own and config.classifies)
    if usual:
        labels, whose = usual.labels, f"labels and pixels of {usual.whose}"
        pixels = {"fit": STRETCH, **usual.pixels, **model.pixels(count)}
    if pixels is None:
        return _without_classes(model)
    proposed += [whose] if whose else []
    graph, name, what = as_shares(ends.graph, scores[0], own and config.independent)
    spec = TaskSpec(CLASSIFY, ends.image.name, name, labels=labels, **pixels)
    in_file = labels and labels in (model.own.labels, *model.notes.labels)
    found = "by the file's metadata" if in_file else "because scores are of classes"
    behind = (f"scores are a {what} of '{scores[0].name}'",) if what else ()
    source = ", ".join((model.source(labels, found), *behind, *proposed))
    source += other
    if not (proposed or other or what):
        return Prepared(graph, spec, source)
    note = f"finds classes, {source}; --labels, --mean and --scale name others"
    return Prepared(with_note(graph, note), spec, source)


def _pixels(
    model: KnownModel, count: int, is_stated: bool = False
) -> tuple[dict[str, Any] | None, str]:
    """What becomes of a picture, as fields of a TaskSpec, and who takes pixels so if that is a
    proposal. None where nothing shows it, because wrong pixels give wrong classes, unless the task
    is asked for, or pictures are gray. `is_stated`: files next to the model say what it is."""
    config, pixels, whose = model.config, model.pixels(count), ""
    alone = model.states_pixels_alone and bool(pixels)
    if alone:
        whose = f"pixels by {config.file}"
    elif not pixels and not model.own.task:
        likely, pixels = ("", {}) if is_stated else model.proposed_pixels(count)
        if likely:
            whose = f"pixels as {likely}'s models{_OF_IMAGENET[count in _IMAGENET]} take them"
        elif model.is_open and model.ends.image.channels > 1 and model.options.task == "guess":
            return None, ""
    own = alone or model.has_config_for(count)
    usual = {"fit": CROP, "filter": LINEAR} if model.own.task else {"fit": STRETCH}
    return {**usual, **(config.placing if own and pixels else {}), **pixels}, whose


def _sex_of_face(model: KnownModel) -> Prepared | None:
    """InsightFace's model for sex and age, whose third value, the age, is left out."""
    ends = model.ends
    size = (ends.image.height, ends.image.width, ends.image.channels)
    if size != _SEX_SIZE or ends.shapes() != _SEX_OUTPUT or model.labels(3):
        return None
    to = Appender(ends.graph, "sex")
    both, _ = to.add_all(ops.Split(1, (2, 1)), to.floats(ends.outputs[0].name))
    name = free_name(ends.graph, SCORES)
    graph = to.with_output(to.add(ops.Softmax(), both), name)
    pixels = {**(_SEX_PIXELS if model.is_open else {}), **model.pixels(0)}
    spec = TaskSpec(CLASSIFY, ends.image.name, name, fit=STRETCH, labels=_SEXES, **pixels)
    source = "because outputs are InsightFace's for the sex and age of a face, which fills the "
    source += "picture and is not looked for; the age is left out"
    return Prepared(with_note(graph, f"finds classes, {source}"), spec, source)


def _one_of_two(model: KnownModel) -> Prepared | None:
    """The share of the second of two classes, as Keras' models often end, if labels name both."""
    labels, share = model.labels(2), model.ends.outputs[0]
    found = both_shares(model.ends.graph, share) if labels else None
    if found is None:
        return None
    graph, name = found
    pixels, whose = _pixels(model, 2)
    if pixels is None:
        return _without_classes(model)
    spec = TaskSpec(CLASSIFY, model.ends.image.name, name, labels=labels, **pixels)
    source = model.source(labels, f"because '{share.name}' is the share of the second of 2 classes")
    source += f", {whose}" if whose else ""
    note = f"finds classes, {source}; --labels, --mean and --scale name others"
    return Prepared(with_note(graph, note), spec, source)


def _without_classes(model: KnownModel) -> Prepared:
    """The graph as it is, with a note of what is missing: wrong pixels give wrong classes."""
    note = (
        "shows no classes: the model does not say which values pixels have; --task classify takes "
        "them from 0 to 1, with --mean 127.5 --scale 127.5 from -1 to 1; so do lines [picture], "
        f"mean = 127.5 and scale = 127.5 in {model.path.stem}.toml next to it"
    )
    graph = model.ends.graph
    return without_task(graph, note)


def class_count(shape: Sequence[int]) -> int:
    """Length of a vector, whose other axes are 1 long; 0 for other shapes."""
    largest = max(shape, default=0)
    return largest if math.prod(shape) == largest else 0
