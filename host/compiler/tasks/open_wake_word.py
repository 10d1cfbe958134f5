"""openWakeWord's models: a word is heard in the last embeddings of speech, which two other files
compute of the sound. The release has all three, and takes the next samples with each run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgekit.device.runtime.agent.task import KEYWORD, TaskSpec
from edgekit.host.compiler.frontends import import_model, outline_model
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Shape, State, Tensor
from edgekit.host.compiler.sidecars import WAKE_WORD_PARTS, wake_word_files
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.prepared import Prepared, free_name, without_task
from edgekit.host.compiler.tasks.splice import spliced
from edgekit.host.errors import InputError

_RATE = 16000
_STEP, _KEPT = 1280, 480  # samples of a run, and those of the one before that are seen again
_ROWS, _BANDS = 76, 32  # of the spectrogram that an embedding is of
_NEW = 8  # rows of a run
_WIDTH = 96  # of an embedding
_FULL_SCALE = 32768  # of the samples that the first model takes


def is_open_wake_word(graph: Graph) -> bool:
    """Whether the input is the last embeddings, and the output a score."""
    ends = [graph.tensors[name] for name in (*graph.inputs, *graph.outputs)]
    if len(ends) != 2 or any(end.dtype is not DType.F32 for end in ends):
        return False
    words, score = ends
    is_embeddings = len(words.shape) == 3 and words.shape[0] == 1 and words.shape[2] == _WIDTH
    return is_embeddings and words.shape[1] > 1 and math.prod(score.shape) == 1


def open_wake_word(path: Path, graph: Graph, silent: bool) -> Prepared | None:
    """The three models as one that takes samples, if the two others are next to this one; else a
    note that says so, unless `silent`. Raises InputError if these are others."""
    files = wake_word_files(path)
    if len(files) < 2 and silent:
        return None
    if len(files) < 2:
        wanted = " and ".join(f"{name}{path.suffix}" for name in WAKE_WORD_PARTS)
        note = f"hears a word if openWakeWord's {wanted} are next to it, but they are not"
        return without_task(graph, note)
    spectrogram = _part(files[0], (1, _KEPT + _STEP), (_NEW, _BANDS))
    embedding = _part(files[1], (1, _ROWS, _BANDS, 1), (_WIDTH,))
    count = graph.tensors[graph.inputs[0]].shape[1]
    samples = "samples"
    made = Graph(graph.name, {samples: Tensor(samples, (1, _STEP), DType.F32)}, (), (samples,), ())
    to = Appender(made, "sound")
    loud = to.add(ops.Mul(), samples, to.constant(np.full((1, 1), _FULL_SCALE)))
    made, sound = _remembered(to, loud, "samples", np.zeros((1, _KEPT), np.float32))
    made, (rows,) = spliced(made, spectrogram, "spectrogram", sound)
    to = Appender(made, "rows")
    scaled = to.add(ops.Mul(), to.add(ops.Reshape((1, _NEW, _BANDS)), rows), _filled(to, 0.1))
    scaled = to.add(ops.Add(), scaled, _filled(to, 2))
    first = np.ones((1, _ROWS - _NEW, _BANDS), np.float32)
    made, rows = _remembered(to, scaled, "rows", first)
    made, (vector,) = spliced(made, embedding, "embedding", rows)
    to = Appender(made, "vectors")
    vector = to.add(ops.Reshape((1, 1, _WIDTH)), vector)
    none = np.zeros((1, count - 1, _WIDTH), np.float32)
    made, vectors = _remembered(to, vector, "vectors", none)
    made, (score,) = spliced(made, graph, "word", vectors)
    to = Appender(made, "score")
    name = free_name(made, "score")
    made = to.with_output(to.add(ops.Reshape((1, 1)), score), name)
    label = path.stem.rsplit("_v", 1)[0].replace("_", " ")
    source = f"because {files[0].name} and {files[1].name} of openWakeWord are next to it"
    note = f"hears '{label}', {source}; --task none leaves the input as it is"
    notes = (*graph.notes, note)
    spec = TaskSpec(KEYWORD, samples, name, labels=(label,), rate=_RATE)
    given = sum(part.given_bytes for part in (graph, spectrogram, embedding))
    return Prepared(replace(made, notes=notes, given_bytes=given), spec, source)


def _part(file: Path, shape: Shape, result: Shape) -> Graph:
    """A model for an input of this shape; its output has the extents `result`, and others of 1."""
    wanted = (
        f"{file}: expected openWakeWord's model with an input of {list(shape)} and an output of "
        f"{list(result)}"
    )
    slots = outline_model(file).inputs
    try:
        made = import_model(file, {slots[0].name: shape})
    except InputError as error:
        raise InputError(f"{wanted}, found another: {error}") from None
    found = [made.tensors[name] for name in (*made.inputs, *made.outputs)]
    extents = tuple(n for n in found[-1].shape if n != 1)
    if len(found) != 2 or extents != result or any(t.dtype is not DType.F32 for t in found):
        raise InputError(f"{wanted}, found {', '.join(str(list(t.shape)) for t in found)}")
    return made


def _filled(to: Appender, value: float) -> str:
    return to.constant(np.full((1, 1, 1), value))


def _remembered(to: Appender, new: str, name: str, first: NDArray[np.float32]) -> tuple[Graph, str]:
    """The graph, and what was remembered with `new` behind it, along axis 1; as much of its end is
    remembered for the next run. `first` comes before the first run."""
    state = f"last/{name}"
    old = to.add(ops.ReadState(state, first.shape, DType.F32))
    whole = to.add(ops.Concat(1), old, new)
    _, kept = to.add_all(ops.Split(1, (to.shape(new)[1], first.shape[1])), whole)
    to.add_all(ops.WriteState(state), kept)
    made = replace(to.graph, states={**to.graph.states, state: State(state, first)})
    return made, whole
