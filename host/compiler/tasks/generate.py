"""Language models: they give the most likely next tokens, of which texts are made on the board."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgekit.device.runtime.agent.generate import CANDIDATES, MOST_CANDIDATES, SCORES, TOKENS
from edgekit.device.runtime.agent.task import GENERATE, TaskSpec
from edgekit.host.compiler.frontends.common.files import read_start
from edgekit.host.compiler.frontends.formats import is_gguf
from edgekit.host.compiler.frontends.gguf.file import read_gguf
from edgekit.host.compiler.frontends.gguf.network import context_of, network_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.language import bpe_spec, language_file
from edgekit.host.compiler.tasks.prepared import Prepared, with_note
from edgekit.host.errors import InputError

FILE = "language.json"  # in the release
_CHUNK = 32  # tokens of a prompt that are read at a time
_TASKS = ("auto", "guess", GENERATE)


def with_chunks(path: Path, options: CompileOptions) -> CompileOptions:
    """Options with a second variant that reads prompts in chunks, for a language model that makes
    texts, whose context has several chunks, and whose shapes are not given."""
    asked = options.shapes or options.signatures or options.task not in _TASKS
    if asked or not is_gguf(read_start(path)):
        return options
    try:
        file = read_gguf(path)
        context = context_of(network_of(file), options.context_tokens)
        bpe_spec(file.about)
    except InputError:
        return options  # the import or the task says so
    if context < 2 * _CHUNK:
        return options
    one, several = ({TOKENS: (1, rows)} for rows in (1, _CHUNK))
    return replace(options, shapes=one, more_shapes=(several,))


def generate_task(path: Path, graph: Graph, options: CompileOptions) -> Prepared:
    """The graph of a GGUF file with the most likely tokens, best first, instead of all logits.

    Raises InputError if the options name the task and the tokenizer cannot be used.
    """
    if options.task not in _TASKS:
        return Prepared(graph)
    logits = graph.outputs[0]
    words = graph.tensors[logits].shape[-1]
    try:
        file = read_gguf(path)
        context = context_of(network_of(file), options.context_tokens)
        data, why = language_file(file.about, words, context)
    except InputError as error:
        if options.task == GENERATE:
            raise InputError(f"{path.name}: {error}") from error
        return Prepared(with_note(graph, f"makes no texts: {error}"))
    to = Appender(graph, SCORES)
    best = ops.TopK(min(MOST_CANDIDATES, words), index=DType.I32)
    scores, numbers = to.add_all(best, logits)
    made = to.with_output(scores, SCORES)
    to = Appender(made, CANDIDATES)
    made = replace(to.with_output(numbers, CANDIDATES), outputs=(SCORES, CANDIDATES))
    said = "continues texts" + (f", answers no questions: {why}" if why else " and answers")
    note = f"{said}; --task none gives the logits"
    spec = TaskSpec(GENERATE, TOKENS, SCORES, tokenizer=FILE)
    return Prepared(replace(made, notes=(*made.notes, note)), spec, said, {FILE: data})
