"""Models of texts, which take tokens: they give a vector, or a score for each class."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.runtime.agent.task import CLASSIFY, EMBED, TaskSpec
from edgekit.host.compiler.inputs import read_attached, read_notes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.makers import probabilities
from edgekit.host.compiler.ir.types import DType, Graph, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.sidecars import CONFIG, DENSE, POOLING, VOCABULARY, config_folder
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.hub import read_config, read_json
from edgekit.host.compiler.tasks.prepared import (
    Prepared,
    free_name,
    recognized,
    with_note,
    without_task,
)
from edgekit.host.compiler.tasks.shares import as_shares
from edgekit.host.compiler.tasks.tokenizer_file import read_tokenizer, tokenizer_of_vocabulary
from edgekit.host.compiler.tasks.vectors import unit_vector
from edgekit.host.errors import InputError

FILE = "tokenizer.json"  # in the release
_EMBEDDING = "embedding"
_LEAST = 8  # numbers of a vector
_MASK, _SEGMENTS = re.compile("mask", re.I), re.compile("type|segment", re.I)
# Outputs with the vector of a text, and with one for each token, by the names of exporters.
_POOLED = re.compile("sentence_embedding|text_embeds|pooled|embedding", re.I)
_SCORES = re.compile("logits|prob|score|label|contextual", re.I)  # the last of ColBERT
_UNKNOWN = (
    "shows no results: {} is neither a vector of a text nor a score for each label of config.json; "
    "--output FILE writes the tensors"
)
_QUESTIONS = (
    "shows no results: it may find where a text answers a question, but a task takes one text; "
    "--output FILE writes the tensors"
)
_NUMBERED = re.compile(rb"\S+ \d+$")  # lines of a vocabulary of whole words
_CLS, _MEAN = "the first token", "the mean of all tokens"
_MODE = "pooling_mode_"
_FIRST_BY_NAME = re.compile(r"\bbge[-_]|arctic-embed|mxbai-embed|gte-\S*(v1\.5|modernbert)", re.I)
# The third is a multiple of the mean, which does not matter to a vector of length 1.
_MODES = {
    "cls_token": _CLS, "mean_tokens": _MEAN, "mean_sqrt_len_tokens": _MEAN, "cls": _CLS,
    "mean": _MEAN,
}  # fmt: skip


@dataclass(frozen=True)
class _Inputs:
    """The inputs with tokens, with 1 for each that counts, and with segments; empty if none."""

    tokens: str
    mask: str = ""
    segments: str = ""


def takes_tokens(inputs: Sequence[tuple[str, DType, int]]) -> bool:
    """Whether inputs, by name, type and number of axes, may be tokens of a text."""
    known = [name for name, *_ in inputs if _MASK.search(name) or _SEGMENTS.search(name)]
    types = all(dtype in (DType.I32, DType.I64) and axes == 2 for _, dtype, axes in inputs)
    return bool(inputs) and types and len(inputs) - len(known) == 1


def text_task(path: Path, graph: Graph, options: CompileOptions) -> Prepared | None:
    """The graph of a model for texts whose tokenizer is known; None for others.

    Raises InputError if the options name a task and the tokenizer cannot be used.
    """
    inputs = _inputs_of(graph)
    if inputs is None or options.task not in ("auto", "guess", CLASSIFY, EMBED):
        return None
    try:
        tokenizer = read_tokenizer(path) or _attached(path)
    except InputError as error:
        if options.task != "auto":
            raise
        return Prepared(with_note(graph, f"takes tokens, no texts: {error}"))
    if tokenizer is None:
        if options.task in (CLASSIFY, EMBED):
            raise InputError(
                f"--task {options.task}: expected tokenizer.json or vocab.txt next to {path.name}, "
                "found neither; put it there"
            )
        return without_task(graph, _QUESTIONS) if _answers(graph, inputs) else None
    make = None if options.task == EMBED else _classifier(path, graph, options)
    try:
        if make is None and options.task != CLASSIFY:
            make = _embedder(path, graph, inputs, options.task == EMBED)
    except InputError as error:
        if options.task == EMBED:
            raise
        note = f"gives no vectors of texts: {error}"
        return without_task(graph, note)
    if make is None and options.task == "guess":
        note = _UNKNOWN.format(" and ".join(f"'{name}'" for name in graph.outputs))
        return without_task(graph, _QUESTIONS if _answers(graph, inputs) else note)
    if make is None:
        return None
    made, kind, output, labels, source = make
    spec = TaskSpec(
        kind,
        inputs.tokens,
        output,
        labels=labels,
        tokenizer=FILE,
        mask=inputs.mask,
        segments=inputs.segments,
    )
    return recognized(made, spec, "takes texts", source, {FILE: tokenizer})


_Made = tuple[Graph, str, str, tuple[str, ...], str]


def _classifier(path: Path, graph: Graph, options: CompileOptions) -> _Made | None:
    """Scores of as many classes as the configuration, or the file's metadata, names."""
    outputs = [graph.tensors[name] for name in graph.outputs]
    lists = (read_config(path).labels, *read_notes(path).labels)
    fits = len(outputs) == 1 and outputs[0].dtype is DType.F32
    count = max(outputs[0].shape, default=0) if fits else 0
    if not fits or math.prod(outputs[0].shape) != count or count < 2:
        return None
    labels = next((each for each in lists if len(each) == count), ())
    if not labels and options.task != CLASSIFY:
        return None
    made, name, what = as_shares(graph, outputs[0], read_config(path).independent)
    stated = CONFIG if labels == lists[0] else "the file's metadata"
    named = f"the labels of {stated}" if labels else "without labels"
    behind = f", by a {what} of '{outputs[0].name}'" if what else ""
    return made, CLASSIFY, name, labels, f"gives the classes of texts, {named}{behind}"


def _answers(graph: Graph, inputs: _Inputs) -> bool:
    """Whether two outputs have a score for each token: of the first and the last of an answer."""
    shapes = [graph.tensors[name].shape for name in graph.outputs]
    return bool(inputs.segments) and shapes == [graph.tensors[inputs.tokens].shape] * 2


def _embedder(path: Path, graph: Graph, inputs: _Inputs, asked: bool) -> _Made | None:
    """One vector of length 1: a pooled output, or the pooled vectors of the tokens, unless they are
    named, or end, as scores and no vector is `asked` for. Raises InputError if these are pooled in
    another way than the first token or the mean."""
    outputs = [graph.tensors[name] for name in graph.outputs]
    if not asked:  # scores of parts of speech, of names, of words
        outputs = [t for t in outputs if not _SCORES.search(graph.output_names.get(t.name, t.name))]
        shares = probabilities(graph, graph.outputs)
        outputs = [t for t in outputs if t.name not in shares]
    floats = [t for t in outputs if t.dtype is DType.F32 and max(t.shape, default=0) >= _LEAST]
    vectors = [t for t in floats if math.prod(t.shape) == max(t.shape)]
    length = graph.tensors[inputs.tokens].shape[1]
    states = [t for t in floats if len(t.shape) == 3 and t.shape[:2] == (1, length)]
    to = Appender(graph, _EMBEDDING)
    named = [t for t in vectors if _POOLED.search(graph.output_names.get(t.name, t.name))]
    pooled = _one(named) or (None if states else _one(vectors))
    if pooled is not None:
        vector, how = pooled.name, f"the output '{pooled.name}'"
    elif len(states) == 1:
        how = _pooling(path)
        vector = _pooled(to, states[0], inputs.mask if how == _MEAN else "", how)
    else:
        return None
    name = free_name(graph, _EMBEDDING)
    made = to.with_output(unit_vector(to, to.tensor(vector)), name)
    return made, EMBED, name, (), f"gives their vectors by {how}"


def _pooling(path: Path) -> str:
    """How sentence-transformers pools the vectors of tokens; their mean if no file says so, and no
    name is of a family that takes the first token."""
    folder = config_folder(path)
    about = read_json(folder / POOLING)
    asked = [name for name in about if name.startswith(_MODE) and about[name] is True]
    modes = [name.removeprefix(_MODE) for name in asked]
    base = read_json(folder / CONFIG).get("_name_or_path")
    if not about and _FIRST_BY_NAME.search(f"{folder.absolute().name} {path.stem} {base}"):
        return _CLS
    if isinstance(about.get("pooling_mode"), str):  # in one word
        modes = [about["pooling_mode"]]
    known = {_MODES.get(mode, "") for mode in modes} or {_MEAN}
    if len(modes) > 1 or "" in known:
        raise InputError(
            f"{POOLING}: expected pooling by {' or '.join(_MODES)}, found {', '.join(modes)}; "
            "export the model with its pooling"
        )
    if (folder / DENSE).is_file():
        raise InputError(
            f"{DENSE}: expected no layer behind the pooling, found one that {path.name} lacks; "
            "export the model with its pooling"
        )
    return known.pop()


def _one(tensors: Sequence[Tensor]) -> Tensor | None:
    return tensors[0] if len(tensors) == 1 else None


def _pooled(to: Appender, states: Tensor, mask: str, how: str) -> str:
    """The sum of the tokens that count, or the first one, f32 [1, n]: of any length."""
    _, length, width = states.shape
    if how == _CLS:
        first = ops.StridedSlice((0, 0, 0), (1, 1, 1), (1, 1, width), (1, width))
        return to.add(first, states.name)
    each = states.name
    if mask:
        counts = to.add(ops.Reshape((1, length, 1)), to.add(ops.Convert(DType.F32), mask))
        each = to.add(ops.Mul(), each, counts)
    return to.add(ops.ReduceSum((1,)), each)


def _attached(path: Path) -> bytes | None:
    """The vocabulary in a .tflite file's metadata."""
    files = read_attached(path).files
    found = [data for name, data in files.items() if name.endswith(VOCABULARY)]
    if len(found) != 1:
        return None
    if all(map(_NUMBERED.fullmatch, found[0].splitlines())):
        raise InputError(
            f"{path}: expected a vocabulary of WordPiece, as BERT has, found numbers of whole "
            "words, which average_word_vec has; give them with --input tokens.npz"
        )
    return tokenizer_of_vocabulary(found[0], path)


def _inputs_of(graph: Graph) -> _Inputs | None:
    tensors = [graph.tensors[name] for name in graph.inputs]
    if not takes_tokens([(t.name, t.dtype, len(t.shape)) for t in tensors]):
        return None
    if len({t.shape for t in tensors}) != 1 or tensors[0].shape[0] != 1:
        return None
    found = {"tokens": "", "mask": "", "segments": ""}
    for tensor in tensors:
        kind = "mask" if _MASK.search(tensor.name) else ""
        kind = kind or ("segments" if _SEGMENTS.search(tensor.name) else "tokens")
        if found[kind]:
            return None
        found[kind] = tensor.name
    return _Inputs(**found)
