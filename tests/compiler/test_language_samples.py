"""Weights of language models are fitted to texts, the same for one token and for several."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.agent.bpe import Bpe
from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.language_samples import fit_to_text
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks.language import bpe_spec
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board
from tests.compiler.frontends.test_gguf import stepped
from tests.support.gguf_files import Array, logits_of, random_model, with_tokenizer


@pytest.fixture
def options(tmp_path: Path) -> CompileOptions:
    text = "".join(random.Random(1).choices("the bow in a hat ", k=3000))
    (tmp_path / "text.txt").write_text(text)
    return CompileOptions(weights="int4", group_size=32, samples=tmp_path / "text.txt", task="none")


def _constants(graph: Graph) -> list[Array]:
    products = [n for n in graph.nodes if isinstance(n.op, ops.OutlierFullyConnected)]
    return [np.asarray(graph.tensors[name or ""].data) for n in products for name in n.inputs[1:4]]


@pytest.mark.slow
def test_weights_are_fitted_and_shared(options: CompileOptions, tmp_path: Path) -> None:
    model, board = with_tokenizer(random_model("llama")), load_board("rpi5")
    file = model.write(tmp_path / "m.gguf")
    fitted = fit_to_text(file, board, options, tmp_path)
    one, several = (
        prepare(file, board, replace(options, shapes={"tokens": (1, rows)}), tmp_path, fitted)
        for rows in (1, 8)
    )
    assert not fitted.graph.states and one.graph.states
    for a, b in zip(_constants(one.imported), _constants(several.imported), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(_constants(one.imported), _constants(fitted.graph), strict=True):
        np.testing.assert_array_equal(a, b)
    notes = " ".join(one.notes)
    assert "fitted to samples: on 12 held-out" in notes and "without samples, at least 0." in notes

    tokens = (*Bpe(bpe_spec(model.about)).tokens("what in a bow hits"),)[:8]
    wanted = logits_of(model, tokens)
    plain = prepare(file, board, replace(options, samples=None), tmp_path)
    near, far = (np.linalg.norm(stepped(each.imported, tokens) - wanted) for each in (one, plain))
    assert near < far
    step = evaluate(
        several.imported,
        {"tokens": np.array([tokens], np.int32), "position": np.zeros(1, np.int32)},
        {name: state.initial for name, state in several.imported.states.items()},
    )
    made = stepped(one.imported, tokens)[-1]
    off = np.abs(step.outputs["logits"][0] - made).max()
    assert off < 0.05 * np.abs(made).max()  # activations are rounded


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "expected a text in UTF-8 as samples for a language model, found none"),
        (b"\xff\xfe\x00", "found something else"),
        (b"the bow", "expected a text of at least 192 tokens, found"),
    ],
)
def test_texts_that_do_not_fit_are_named(
    content: bytes | None, said: str, options: CompileOptions, tmp_path: Path
) -> None:
    file = with_tokenizer(random_model()).write(tmp_path / "m.gguf")
    (tmp_path / "text.txt").unlink()
    if content is not None:
        (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(InputError, match=said):
        fit_to_text(file, load_board("rpi5"), options, tmp_path)


def test_layers_of_more_bits_are_not_chosen(options: CompileOptions, tmp_path: Path) -> None:
    file = with_tokenizer(random_model()).write(tmp_path / "m.gguf")
    with pytest.raises(InputError, match="--min-cosine: expected a model other than a language"):
        fit_to_text(file, load_board("rpi5"), replace(options, min_cosine=0.9), tmp_path)


def test_samples_without_weights_are_refused(options: CompileOptions, tmp_path: Path) -> None:
    file = with_tokenizer(random_model()).write(tmp_path / "m.gguf")
    with pytest.raises(
        InputError, match="--samples: expected --weights int8, int4, int3 or int2 with"
    ):
        prepare(file, load_board("rpi5"), replace(options, weights=None, group_size=None))
