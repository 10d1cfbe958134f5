"""Fits the weights of a language model to a text: to parts of it, each read from the beginning."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.device.runtime.agent.bpe import Bpe
from edgekit.device.runtime.agent.generate import POSITION, TOKENS
from edgekit.host.compiler.frontends.common.files import read_start
from edgekit.host.compiler.frontends.formats import is_gguf
from edgekit.host.compiler.frontends.gguf.file import read_gguf
from edgekit.host.compiler.frontends.gguf.network import context_of, network_of
from edgekit.host.compiler.ir.types import Array, Graph
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.pipeline import PreparedGraph, fit_from_beginning, target_of
from edgekit.host.compiler.tasks import import_for_task
from edgekit.host.compiler.tasks.language import bpe_spec
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile

_LOG = logging.getLogger(__name__)
_ROWS = 32  # tokens of a part
_FEWEST, _MOST = 8, 48  # parts
_MOST_TEXT = 1 << 20  # bytes of a text that are read


def fits_to_text(model: Path, options: CompileOptions) -> bool:
    """Whether the options ask to fit a language model to samples. Raises InputError if they give
    samples without weights, which would quantize activations, too."""
    if not options.samples or not is_gguf(read_start(model)):
        return False
    if options.weights is None:
        raise InputError(
            "--samples: expected --weights int8, int4, int3 or int2 with it for a language model, "
            "found none"
        )
    return True


def reads_tokens(graph: Graph) -> bool:
    """Whether a graph is a step of a language model."""
    return bool(graph.states) and {*graph.inputs} == {TOKENS, POSITION}


def fit_to_text(
    model: Path, board: BoardProfile, options: CompileOptions, cache: Path | None
) -> PreparedGraph:
    """The network for several tokens, with the options' weights fitted to their samples.

    Raises InputError for samples that are no text, or a short one.
    """
    if options.min_cosine is not None:
        raise InputError(
            "--min-cosine: expected a model other than a language model, found one; leave it out"
        )
    file = read_gguf(model)
    rows = min(_ROWS, context_of(network_of(file), options.context_tokens))
    shapes = {TOKENS: (1, rows), POSITION: (1,)}
    several = replace(options, shapes={TOKENS: shapes[TOKENS]}, more_shapes=(), task="none")
    assert options.samples is not None
    bpe, before = Bpe(bpe_spec(file.about)), bpe_spec(file.about).before
    parts = _parts(options.samples, bpe, before, rows)
    zero = np.zeros(shapes[POSITION], np.int32)
    samples = [{TOKENS: part, POSITION: zero} for part in parts]
    _LOG.info("%s: fitting weights to %s", model.name, options.samples)
    target = replace(target_of(board, options, cache=cache), samples=samples)
    return fit_from_beginning(import_for_task(model, several), target)


def _parts(path: Path, bpe: Bpe, before: tuple[int, ...], rows: int) -> Sequence[Array]:
    """Tokens of a text, s32 [1, rows] each, evenly spaced in it."""
    try:
        with path.open("rb") as source:
            text = source.read(_MOST_TEXT).decode("utf-8")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: expected a text in UTF-8 as samples for a language model, found "
            f"{'none' if isinstance(error, OSError) else 'something else'}"
        ) from None
    size = rows - len(before)
    tokens = bpe.tokens(text)
    starts = range(0, len(tokens) - size + 1, size) if size > 0 else range(0)
    if len(starts) < _FEWEST:
        raise InputError(
            f"{path}: expected a text of at least {_FEWEST * size} tokens, found {len(tokens)}; "
            "give a longer one"
        )
    chosen = [*starts][:: max(len(starts) // _MOST, 1)][:_MOST]
    return [np.array([[*before, *tokens[at : at + size]]], np.int32) for at in chosen]
