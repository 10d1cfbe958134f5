"""Models that transcribe speech with an encoder and a decoder in files of their own, as
Optimum exports Whisper and Moonshine (Radford et al., 2022; Jeffries et al., 2024).

The release has two signatures. LISTEN computes from samples what the decoder knows of the sound,
also the keys and values of its cross-attention, which do not depend on the text: they are states
that WRITE reads to compute the token behind those so far. With a decoder for one more token next to
it, WRITE takes one token and keeps a cache of the text (`dictation_cache.py`). Else the decoder
computes all places each time, in a number that is compiled for short and long texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.device.runtime.agent.dictation import LANGUAGE, TIMES
from edgekit.device.runtime.agent.generate import CANDIDATES, POSITION, SCORES
from edgekit.device.runtime.agent.task import LISTEN, TRANSCRIBE, WRITE, TaskSpec
from edgekit.host.compiler.frontends import (
    check_signatures,
    import_model,
    outline_model,
    signatures_of,
)
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Node, Shape, State, Tensor
from edgekit.host.compiler.options import CompileOptions, Shapes
from edgekit.host.compiler.sidecars import (
    CONFIG,
    PIXELS,
    config_folder,
)
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.dictation_cache import (
    cached_step,
    is_for_one_token,
    is_sound_state,
    sound_states,
)
from edgekit.host.compiler.tasks.dictation_file import FILE, Dictated, read_dictation
from edgekit.host.compiler.tasks.hub import read_json
from edgekit.host.compiler.tasks.log_mel import log_mel
from edgekit.host.compiler.tasks.merged_decoder import decoder_of, next_token_of
from edgekit.host.compiler.tasks.page import page_variants
from edgekit.host.compiler.tasks.prepared import Prepared, recognized, without_task
from edgekit.host.compiler.tasks.splice import spliced
from edgekit.host.errors import InputError

_SAMPLES = "samples"
_FEATURES, _STATES = "input_features", "encoder_hidden_states"
_TOKENS = "input_ids"
_WHISPER = "WhisperFeatureExtractor"
_LENGTHS = (32, 128)  # tokens of short and long texts
_MOST_KEPT = 448  # tokens in a cache: as many as Whisper takes
_NEVER = -1e30
_TASKS = ("auto", "guess", TRANSCRIBE)


def variants_of(path: Path, options: CompileOptions) -> tuple[CompileOptions, ...]:
    """The options of each variant of a model's release. Raises InputError for signatures that it
    has not, or that do not fit together."""
    if options.recognizer is not None:
        return page_variants(options)
    if is_dictation(path, options):
        known = {LISTEN: (_sound_input(path),), WRITE: (_TOKENS, POSITION)}
        if not options.shapes:
            most = read_dictation(path).most
            known_lengths = (_MOST_KEPT,) if _keeps_text(path) else _LENGTHS
            lengths = dict.fromkeys(min(length, most) for length in known_lengths)
            first, *more = ({_TOKENS: (1, length)} for length in lengths)
            options = replace(options, shapes=first, more_shapes=tuple(more))
        return options.each_variant(known)
    signatures = signatures_of(path)
    every = options.each_variant(signatures)
    if len(every) > 1 and signatures:
        check_signatures(path, [each.signature for each in every])
    return every


def is_dictation(path: Path, options: CompileOptions) -> bool:
    """Whether the file is an encoder of sound that has its decoder next to it."""
    file = decoder_of(path) if options.task in _TASKS else None
    if file is None or not _hears(path):
        return False
    return {slot.name for slot in outline_model(file).inputs} == {_TOKENS, _STATES}


def without_decoder(path: Path, graph: Graph, asked: bool) -> Prepared | None:
    """The graph of an encoder of sound with a note that its decoder is missing; None for others.
    Raises InputError if the task is asked for."""
    about = read_json(config_folder(path) / CONFIG)
    if about.get("is_encoder_decoder") is not True or not _hears(path):
        return None
    name = path.name.replace("encoder", "decoder")
    wanted = f"{name} with the inputs {_TOKENS} and {_STATES} is next to it"
    if asked:
        raise InputError(f"--task {TRANSCRIBE}: expected that {wanted}, found none; fetch it, too")
    note = f"transcribes speech if {wanted}, but it is not"
    return without_task(graph, note)


def _hears(path: Path) -> bool:
    """Whether the only input is samples, or Whisper's features of them."""
    inputs, pixels = outline_model(path).inputs, read_json(config_folder(path) / PIXELS)
    if len(inputs) != 1 or inputs[0].dtype != "f32":
        return False
    name, rank = inputs[0].name, len(inputs[0].shape or ())
    if name == _FEATURES:
        return rank == 3 and pixels.get("feature_extractor_type") == _WHISPER
    return rank == 2 and pixels.get("do_normalize") is not True


def dictation_graph(path: Path, options: CompileOptions) -> Graph:
    """The graph of one of the two signatures. Raises InputError as `import_model` does."""
    file, about = decoder_of(path), read_dictation(path)
    assert file is not None
    encoder = _encoder(path, about, options.shapes)
    hidden = encoder.tensors[encoder.outputs[0]].shape
    length = options.shapes.get(_TOKENS, (1, _LENGTHS[0]))
    decoder = import_model(file, {_TOKENS: length, _STATES: hidden})
    before, after = _cut(decoder)
    step = _step_of(path, decoder)
    kept = sound_states(decoder) if step else _kept(before, after)
    if options.signature == LISTEN:
        return _listener(encoder, replace(decoder, nodes=before, outputs=kept))
    if step is not None:
        return _with_best(Appender(step, "next"), step.outputs[0], about)
    return _writer(decoder, after, kept, about)


def _step_of(path: Path, decoder: Graph) -> Graph | None:
    """The graph of one more token, if there is a file for it that fits."""
    file = next_token_of(path)
    if file is None or not _keeps_text(path):
        return None
    return cached_step(file, decoder, _TOKENS, decoder.tensors[_TOKENS].shape[-1])


def _keeps_text(path: Path) -> bool:
    """Whether there is a decoder with a cache of the text, of which a release has one."""
    file, decoder = next_token_of(path), decoder_of(path)
    return file is not None and decoder is not None and is_for_one_token(file, decoder, _TOKENS)


def dictation_task(path: Path, graph: Graph, options: CompileOptions) -> Prepared:
    """The task of that graph, which LISTEN has."""
    if options.signature != LISTEN:
        return Prepared(graph)
    about = read_dictation(path)
    samples = graph.inputs[0]
    spec = TaskSpec(TRANSCRIBE, samples, graph.outputs[0], rate=about.rate, characters=FILE)
    cached = any(is_sound_state(name) for name in graph.states)
    seconds = graph.tensors[samples].shape[-1] / about.rate
    file = decoder_of(path)
    source = f"because {file.name if file else ''} is next to it"
    heard = f"in '{about.language}', as generation_config.json says, " if about.language else ""
    does = f"transcribes speech {heard}in windows of {seconds:.3g} s"
    return recognized(graph, spec, does, source, {FILE: about.file(cached)})


def _sound_input(path: Path) -> str:
    (slot,) = outline_model(path).inputs
    return _SAMPLES if slot.name == _FEATURES else slot.name


def _encoder(path: Path, about: Dictated, shapes: Shapes) -> Graph:
    """The encoder with samples as input, f32 [1, n]."""
    name = _sound_input(path)
    if name != _SAMPLES:
        (slot,) = outline_model(path).inputs
        length = (slot.shape or (None,))[-1]
        usual = (1, length if isinstance(length, int) else about.samples)
        return import_model(path, {name: shapes.get(name, usual)})
    features = about.features
    given = import_model(path, {_FEATURES: (1, features.bands, features.frames)})
    front = log_mel(features, name, "features")
    made, outputs = spliced(front, given, "encoder", front.outputs[0])
    return replace(made, name=given.name, outputs=outputs, given_bytes=given.given_bytes)


def _cut(decoder: Graph) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The nodes of a decoder that depend on the sound alone, and all others."""
    texts, sounds = {_TOKENS}, {_STATES}
    before, after = [], []
    for node in decoder.nodes:
        if texts.intersection(filter(None, node.inputs)):
            texts.update(node.outputs)
        elif sounds.intersection(filter(None, node.inputs)):
            sounds.update(node.outputs)
            before.append(node)
            continue
        after.append(node)
    return tuple(before), tuple(after)


def _kept(before: Iterable[Node], after: Iterable[Node]) -> tuple[str, ...]:
    """The tensors of the sound that the nodes of the text take."""
    known = {_STATES, *(name for node in before for name in node.outputs)}
    taken = (name for node in after for name in node.inputs)
    return tuple(dict.fromkeys(name for name in taken if name in known))


def _listener(encoder: Graph, part: Graph) -> Graph:
    """Computes the states of the sound; its output is the encoder's."""
    part = replace(part, inputs=(_STATES,))
    made, kept = spliced(encoder, part, "decoder", encoder.outputs[0])
    to = Appender(made, "kept")
    states = {}
    for name, value in zip(part.outputs, kept, strict=True):
        to.add_all(ops.WriteState(name), value)
        states[name] = _silence(name, to.shape(value))
    return replace(to.graph, states=states, given_bytes=encoder.given_bytes + part.given_bytes)


def _silence(name: str, shape: Shape) -> State:
    return State(name, np.zeros(shape, np.float32))


def _writer(decoder: Graph, after: tuple[Node, ...], kept: Iterable[str], about: Dictated) -> Graph:
    """Computes the most likely tokens behind the one at POSITION, with their probabilities, and
    the most likely language, if the model chooses it."""
    shapes = {name: decoder.tensors[name].shape for name in kept}
    reads = [
        Node(f"kept/{name}", ops.ReadState(name, shape, DType.F32), (), (name,))
        for name, shape in shapes.items()
    ]
    given = {POSITION: Tensor(POSITION, (1,), DType.I32)}
    logits = decoder.outputs[0]
    made = replace(
        decoder,
        tensors={**decoder.tensors, **given},
        nodes=(*reads, *after),
        inputs=(_TOKENS, POSITION),
        outputs=(),
        states={name: _silence(name, shape) for name, shape in shapes.items()},
    )
    to = Appender(made, "next")
    return _with_best(to, _row(to, logits), about)


def _with_best(to: Appender, row: str, about: Dictated) -> Graph:
    """The graph with the most likely tokens by the logits [1, 1, words] of `row` as outputs."""
    words = to.shape(row)[-1]
    never = [n for n in about.suppressed if n < words]
    allowed = row
    if never:
        penalty = np.zeros((1, 1, words))
        penalty[..., never] = _NEVER
        allowed = to.add(ops.Add(), row, to.constant(penalty))
    outputs, shares = {}, to.add(ops.Softmax(), allowed)
    if times := about.spec.times:
        stamps = np.array([*about.spec.ends, *range(times, words)])
        outputs[TIMES] = to.add(ops.Gather(2), shares, to.constant(stamps, DType.I32))
        shares, _ = to.add_all(ops.Split(2, (times, words - times)), shares)
    likely = ops.TopK(min(len(about.spec.held) + 1, words), index=DType.I32)
    outputs[SCORES], outputs[CANDIDATES] = to.add_all(likely, shares)
    if languages := about.spec.languages:
        found = to.add(ops.Gather(2), row, to.constant(np.array(languages), DType.I32))
        _, outputs[LANGUAGE] = to.add_all(ops.TopK(1, index=DType.I32), found)
    graph = replace(to.graph, outputs=())
    for called, name in outputs.items():
        graph = Appender(graph, called).with_output(name, called)
    return graph


def _row(to: Appender, logits: str) -> str:
    """The logits [1, 1, words] at POSITION. What computes each row by itself of the one before, as
    the product with all words, follows after it is taken, so that it is computed for one only."""
    producer = {name: node for node in to.graph.nodes for name in node.outputs}
    steps: list[Node] = []
    at = logits
    while (node := producer.get(at)) is not None and _is_of_rows(to, node):
        steps.append(node)
        at = node.inputs[0] or ""
    found = to.add(ops.Gather(1), at, POSITION)
    for node in reversed(steps):
        if not isinstance(node.op, ops.Reshape):
            (found,) = to.add_all(node.op, found, *node.inputs[1:])
    return found


def _is_of_rows(to: Appender, node: Node) -> bool:
    """Whether a node computes each row [1, n, ...] of the same row of its first input and
    constants that are the same for all."""
    first, *others = node.inputs
    if first is None or any(name is not None and to.tensor(name).data is None for name in others):
        return False
    shape, made = to.shape(first), to.shape(node.outputs[0])
    if isinstance(node.op, ops.Reshape):
        return shape == made
    if len(shape) != 3 or made[:-1] != shape[:-1]:
        return False
    if isinstance(node.op, ops.FullyConnected):
        return node.op.keep_dims
    ranks = [len(to.shape(name)) for name in others if name is not None]
    if isinstance(node.op, ops.MatMul):
        return ranks == [2]
    return isinstance(node.op, ops.Add | ops.Mul) and max(ranks) <= 1
