"""Finds a model's task: in the metadata of its file, or by the shapes of its outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgekit.device.runtime.agent.task import (
    CLASSIFY,
    DETECT,
    EMBED,
    GENERATE,
    IMAGE,
    INSTANCES,
    OBB,
    PICTURES,
    POSE,
    READ,
    SEGMENT,
    SOUNDS,
    STRETCH,
    TaskSpec,
)
from edgekit.host.compiler.frontends.common.files import read_start
from edgekit.host.compiler.frontends.formats import format_of, is_gguf
from edgekit.host.compiler.inputs import read_detection_notes
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.sidecars import PADDLE_FILES, PIPELINE, features_file
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.classes import classifier
from edgekit.host.compiler.tasks.coco import COCO, COCO_CATEGORIES, as_categories
from edgekit.host.compiler.tasks.dictation import dictation_task, is_dictation
from edgekit.host.compiler.tasks.ends import Ends, image_of, pictures_at_once
from edgekit.host.compiler.tasks.features import how_computed
from edgekit.host.compiler.tasks.generate import generate_task
from edgekit.host.compiler.tasks.given import TENSORFLOW
from edgekit.host.compiler.tasks.heads import Head, of_that_name
from edgekit.host.compiler.tasks.hub import MMDEPLOY, PADDLE, POINTS
from edgekit.host.compiler.tasks.images import image_maker, undecided_image
from edgekit.host.compiler.tasks.instances import instance_head, with_instance_masks
from edgekit.host.compiler.tasks.kaldi import kaldi_task
from edgekit.host.compiler.tasks.known import KnownModel, known_of
from edgekit.host.compiler.tasks.landmarks import PFLD_NUMBERS, pfld
from edgekit.host.compiler.tasks.lines import line_direction, line_reader, scores_of
from edgekit.host.compiler.tasks.named import named_graph
from edgekit.host.compiler.tasks.page import check_finder, part_of
from edgekit.host.compiler.tasks.persons import (
    face_maps,
    named_bodies,
    person_maps,
    undecided_maps,
    vit_pose,
)
from edgekit.host.compiler.tasks.plates import plate_reader
from edgekit.host.compiler.tasks.poses import PERSON_POINTS, points_behind, pose_heads
from edgekit.host.compiler.tasks.prepared import Prepared, free_name, recognized, without_task
from edgekit.host.compiler.tasks.recognize import find_heads
from edgekit.host.compiler.tasks.rotated import rotated_head
from edgekit.host.compiler.tasks.segments import (
    class_map,
    gives_logits,
    is_of_hub,
    is_shares,
    is_street,
    is_whole,
    known_classes,
)
from edgekit.host.compiler.tasks.sizes import with_sizes
from edgekit.host.compiler.tasks.sounds import feature_task, sound_task
from edgekit.host.compiler.tasks.speech import unlisted_speech
from edgekit.host.compiler.tasks.stated import stated_picture
from edgekit.host.compiler.tasks.text_map import TEXT_MAP
from edgekit.host.compiler.tasks.texts import text_task
from edgekit.host.compiler.tasks.unbatched import with_batch
from edgekit.host.compiler.tasks.unsupported import known_detector, known_listener
from edgekit.host.compiler.tasks.usual_pixels import ends_in_logits
from edgekit.host.compiler.tasks.vectors import (
    EMBEDDINGS,
    first_token,
    undecided_vector,
    unit_vector,
    usual_vector,
    vector_of,
)
from edgekit.host.compiler.tasks.voices import voice_task
from edgekit.host.compiler.tasks.widen import widened
from edgekit.host.errors import InputError

DETECTIONS, POSES, SEGMENTS, EMBEDDING = "detections", "poses", "segments", "embedding"
_FEATURES = "if the input is features of sound, say in"
# The file with how a head's pixels become values, whose it is, and the usual values without it.
_PIXELS_IN = {
    PADDLE: (PADDLE_FILES[0], "PaddleDetection", "from 0 to 1"),
    MMDEPLOY: (PIPELINE, "MMDeploy", "from 0 to 255, blue first"),
}


def with_task(path: Path, graph: Graph, options: CompileOptions) -> Prepared:
    """The graph of a model for the task that the options name, or that its file states.

    For "guess", a head that is recognized by the shapes of its outputs is enough. Raises
    InputError if the options name a task, or a head, that the outputs do not fit.
    """
    if options.recognizer is not None:
        file, own = part_of(path, options)
        part = with_task(file, graph, own)
        if options.signature != READ:
            check_finder(part.task)
        return part
    if is_gguf(read_start(path)):
        return generate_task(path, graph, options)
    if options.task == GENERATE:
        raise InputError(
            f"--task generate: expected a language model as .gguf, found {path.name}; convert a "
            "folder of Hugging Face: edgekit compile FOLDER -o llm.gguf"
        )
    if options.signature and is_dictation(path, options):
        return dictation_task(path, graph, options)
    if spoken := voice_task(path, graph, options):
        return spoken
    if heard := feature_task(path, graph, options):
        return heard
    if spoken := kaldi_task(path, graph, options):
        return spoken
    if options.task in SOUNDS:
        return sound_task(path, graph, options) or Prepared(graph)
    alone = with_batch(with_sizes(graph))
    image = None if options.task == "none" else image_of(alone, format_of(path) == "tflite")
    if image is None:
        if texts := text_task(path, graph, options):
            return texts
        if options.task in PICTURES:
            raise _misfit(options.task, graph, "an input of one picture")
        if options.task != "none" and (asked := stated_picture(path)[0]):
            raise _misfit(asked, graph, "an input of one picture", path)
        if options.task == "guess" and (said := named_graph(path, graph)):
            return _unused(graph, said)
        return sound_task(path, graph, options) or _without_results(path, graph, options)
    ends = Ends(widened(alone), image)
    model = known_of(path, ends, options)
    if plates := plate_reader(model):
        return plates
    if options.task == "guess" and (said := named_graph(path, ends.graph)):
        return _unused(graph, said)
    if lines := line_reader(model) or line_direction(model):
        return lines
    guesses = options.task == "guess" and not (options.head or model.stated)
    for task, make, expected in (
        (INSTANCES, _instances, ""),
        (OBB, _rotated, ""),
        (DETECT, _detector, "outputs of a known detector"),
        (POSE, _pose, "the output of a YOLO that finds poses"),
        (SEGMENT, _segmenter, "one output with the classes of all pixels, or scores of each class"),
        (CLASSIFY, classifier, "one output with a score for each class"),
        (EMBED, _embedder, "one output that is a vector"),
        (IMAGE, image_maker, "one output that has the input's proportions, in 1 or 3 channels"),
    ):
        if guesses or model.asks_for(task):
            made = make(model)
            if made is not None:
                return made
            if options.task == task:
                raise _misfit(task, graph, expected)
            if model.asked == task:
                raise _misfit(task, graph, expected, path)
    return _unknown(graph, model)


def _without_results(path: Path, graph: Graph, options: CompileOptions) -> Prepared:
    """The graph of a model that takes no picture, with a note where results are expected."""
    if options.task != "guess":
        return Prepared(graph)
    if known := known_listener(graph) or unlisted_speech(graph):
        return _unused(graph, known)
    why = "its inputs and outputs are not known ones"
    if count := pictures_at_once(graph):
        why = f"it takes {count} pictures at a time, a task one; export it with a batch of 1"
    given = [graph.tensors[name] for name in graph.inputs]
    if any(len(t.shape) == 3 and t.dtype is DType.F32 for t in given) and not graph.states:
        why += f"; {_FEATURES} {path.stem}.toml next to it {how_computed(given[0].shape)}"
    return _unused(graph, why)


def _unused(graph: Graph, why: str) -> Prepared:
    """The graph as it is, with a note of what it is and what is missing."""
    note = f"shows no results: {why}; --output FILE writes the tensors"
    return without_task(graph, note)


def _unknown(graph: Graph, model: KnownModel) -> Prepared:
    """The graph as it is. Says why no results will be shown where they are expected."""
    stated = model.own.task
    if model.options.task != "guess" and not (stated and model.options.task == "auto"):
        return Prepared(graph)
    why = known_detector(model.ends.graph, model.ends.image) or undecided_image(model)
    why = why or undecided_vector(model) or undecided_maps(model.ends)
    why = why or "its outputs are not known ones"
    lines = scores_of(model.ends)
    if lines is not None:
        why = (
            f"'{lines.name}' may be characters along a line of text, which no file lists: put them "
            f"into {model.path.stem}.txt next to it, one in each line"
        )
    elif not model.ends.image.is_plausible:
        why = (
            f"its outputs are not known ones; {_FEATURES} {model.path.stem}.toml next to it "
            f"{how_computed(graph.tensors[graph.inputs[0]].shape)}"
        )
    if stated:
        why = f"its metadata states the task '{stated}', whose outputs are not decoded"
    note = (
        f"shows no results: {why}; --output FILE writes the tensors, --task {'|'.join(PICTURES)} "
        "names what it is for"
    )
    return without_task(graph, note)


def _detector(model: KnownModel) -> Prepared | None:
    heads = find_heads(model.ends, read_detection_notes(model.path))
    if chosen := model.options.head:
        known = " or ".join(head.name for head in heads) or "no head"
        heads = [head for head in heads if head.name == chosen]
        if not heads:
            raise InputError(
                f"--head: expected {known} by the outputs, found {chosen}; leave it out"
            )
    heads = [head for head in heads if head.name == model.config.head] or heads
    # Fields behind the scores may be no classes, unless they are as many as labels.
    named = [h for h in heads if h.classes == len(COCO) or h.labels or model.labels(h.classes)]
    heads = [h for h in named if h.likely] or heads
    if len(heads) > 1:
        heads = of_that_name(named, model.path.stem) or heads
    if len(heads) > 1:
        return _undecided(model, heads)
    if heads and heads[0].doubt and not (chosen or model.labels(heads[0].classes)):
        head = heads[0]
        return _without_boxes(
            model,
            f"{head.doubt}; --head {head.name} decodes classes, and so do labels of "
            f"{head.classes} lines in {model.path.stem}.txt next to it",
        )
    stated = _PIXELS_IN.get(heads[0].name) if heads else None
    is_theirs = bool(heads) and model.config.head == heads[0].name
    if stated and not (is_theirs or model.options.head or model.picture):
        file, whose, otherwise = stated
        return _without_boxes(
            model,
            f"how the model takes pixels is in {file}, which {whose} exports: put it next to "
            f"{model.path.name}, or name the head for pixels {otherwise}: --head {heads[0].name}",
        )
    return _with_rows(model, heads[0].kind, heads[0], "boxes", DETECTIONS) if heads else None


def _undecided(model: KnownModel, heads: Sequence[Head]) -> Prepared:
    *names, last = (head.name for head in heads)
    said = (
        f"the outputs may be of {', '.join(names)} or {last}, which decode boxes differently; name "
        f"the right one, as in --head {last}"
    )
    return _without_boxes(model, said)


def _without_boxes(model: KnownModel, said: str) -> Prepared:
    """The graph as it is, with a note of what is missing, which is an error where boxes are asked
    for."""
    if model.options.task == DETECT:
        raise InputError(f"--task detect: {said}")
    note = f"finds no boxes: {said}"
    graph = model.ends.graph
    return without_task(graph, note)


def _instances(model: KnownModel) -> Prepared | None:
    head = instance_head(model.ends)
    if head is None:
        return None
    found = _with_rows(model, INSTANCES, head, "objects and their masks", DETECTIONS)
    return with_instance_masks(found, model.ends)


def _rotated(model: KnownModel) -> Prepared | None:
    head = None if model.options.head else rotated_head(model.ends, model.own.task == OBB)
    return _with_rows(model, OBB, head, "rotated boxes", DETECTIONS) if head else None


def _pose(model: KnownModel) -> Prepared | None:
    stated = model.own.points
    likely = points_behind(model.ends) or PERSON_POINTS
    heads: Iterator[Head] = pose_heads(model.ends, stated if stated[0] else likely)
    if model.config.kind in POINTS:
        heads = vit_pose(model.ends)
    else:
        heads = itertools.chain(heads, person_maps(model.ends, model.path.stem))
        heads = itertools.chain(heads, vit_pose(model.ends) if model.options.task == POSE else ())
    heads = itertools.chain(face_maps(model.ends, model.path.stem), heads)
    if not model.labels(PFLD_NUMBERS):  # which may also be classes
        heads = itertools.chain(heads, pfld(model.ends))
    for head in heads:
        if stated[0] or model.asks_for(POSE) or head.classes <= 1:
            body = named_bodies(head, model.path.stem)
            return _with_rows(model, POSE, body, "poses", POSES)
    return None


def _with_rows(model: KnownModel, task: str, head: Head, found: str, output: str) -> Prepared:
    """The graph with the head's decoder behind it."""
    graph = model.ends.graph
    to = Appender(graph, output)
    name = free_name(graph, output)
    made = to.with_output(head.rows(to), name)
    labels = model.labels(head.classes) or head.labels
    if head.counted == len(COCO_CATEGORIES) or head.name == TENSORFLOW:
        labels = as_categories(labels)
    whose, own = model.named_pixels if head.name == TEXT_MAP else ("", {})
    usual = f", pixels as {whose} takes them" if whose else ""
    pixels = {**head.pixels, **own, **model.pixels(head.classes, head.name)}
    if head.usual and not pixels.keys() & head.usual.keys():
        pixels, usual = {**pixels, **head.usual}, f", {head.usual_of}"
    source = model.source(labels, f"because {head.what}") + usual
    labels = ("",) * (head.first if labels else 0) + labels
    proposed = model.contradiction(head.classes, labels)
    if not (labels or proposed) and head.classes == len(COCO):
        labels, proposed = COCO, ", labels of COCO because there are 80 classes"
    if not (labels or proposed) and head.counted == len(COCO_CATEGORIES):
        labels, proposed = COCO_CATEGORIES, ", labels of COCO because there are 90 classes"
    spec = TaskSpec(task, model.ends.image.name, name, labels=labels, **pixels)
    return recognized(made, spec, f"finds {found}", source + proposed)


def _segmenter(model: KnownModel) -> Prepared | None:
    """Unless that is asked for, labels of all channels, or a known number of channels for each
    pixel of the input must show that they are scores: they may be colors, or places of joints."""
    is_logits = gives_logits(model.ends) or ends_in_logits(model.path.stem)
    seen = class_map(model.ends, is_logits)
    if seen is None:
        return None
    if model.config.kind in POINTS and model.options.task != SEGMENT:
        return None  # maps of where points are
    labels = model.labels(seen.count) if seen.count else ()
    if seen.classes == 1 and labels:
        labels = ("background", *labels)  # the share of one class: zeros are the rest
    named = seen.logits or is_of_hub(model.ends, seen)
    sure = model.options.task == SEGMENT or labels or is_shares(model.ends, seen)
    likely = named or is_whole(model.ends, seen) or is_street(model.ends, seen)
    if not (sure or likely):
        return None
    graph = model.ends.graph
    to = Appender(graph, SEGMENTS)
    name = free_name(graph, SEGMENTS)
    made = to.with_output(seen.numbers(to), name)
    what = f"{'is' if sure else 'may be'} a map of classes"
    what = "may be the share of one class" if seen.classes == 1 else what
    source = model.source(labels, f"because '{seen.tensor.name}' {what}")
    pixels = model.pixels(seen.count)
    if not labels and (known := known_classes(model.ends, seen)):
        whose, labels = known
        source += f", labels of {whose} because there are {seen.count} classes"
    likely = likely or (seen.classes == 1 and len(model.ends.outputs) > 1)
    if not pixels and model.is_open:
        whose, pixels = model.named_pixels
        if not whose and likely and model.torch_pixels:
            whose, pixels = "PyTorch", model.torch_pixels
        taken = f"as {whose}'s models take them" if whose else "from 0 to 1"
        source += f", pixels {taken}"
    spec = TaskSpec(SEGMENT, model.ends.image.name, name, labels=labels, **pixels)
    return recognized(made, spec, "finds the classes of pixels", source)


def _embedder(model: KnownModel) -> Prepared | None:
    """A vector of length 1. Only if that is asked for, as Hugging Face's files name it if files
    next to it say how pixels become values, or for shapes of well-known models: vectors may be
    anything."""
    vector = vector_of(model.ends) or first_token(model)
    pixels, whose = model.pixels(0), ""
    known = vector is not None and vector.name in EMBEDDINGS and bool(pixels)
    if vector is not None and not (known or model.asks_for(EMBED)):
        whose, pixels = usual_vector(model, vector)
    if vector is None or not (known or whose or model.asks_for(EMBED)):
        return None
    graph = model.ends.graph
    to = Appender(graph, EMBEDDING)
    name = free_name(graph, EMBEDDING)
    made = to.with_output(unit_vector(to, vector), name)
    placing = {"fit": STRETCH, **(model.config.placing if pixels else {}), **pixels}
    spec = TaskSpec(EMBED, model.ends.image.name, name, **placing)
    source = f"because '{vector.name}' {whose or 'is a vector'}"
    return recognized(made, spec, "gives the vectors of pictures", source)


def _misfit(task: str, graph: Graph, expected: str, file: Path | None = None) -> InputError:
    """A model that is not for the task that the option names, or what is next to the file."""
    ends = (f"'{n}' {list(graph.tensors[n].shape)}" for n in (*graph.inputs, *graph.outputs))
    where = f"{features_file(file)}: task {task}" if file else f"--task {task}"
    return InputError(f"{where}: expected {expected}, found {', '.join(ends)}; leave it out")
