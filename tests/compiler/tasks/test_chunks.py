"""Language models whose prompts are read in chunks: the variant for these, and its weights."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.host.compiler.driver import compile_variants, plan_graph, prepare
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.lowering.context import WeightsFile
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import with_chunks
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board
from tests.support.gguf_files import BF16, F16, Q4_0, Q4_1, Q8_0, random_model, with_tokenizer
from tests.support.places import few_or_all

_FORMS = {"f16": F16, "bf16": BF16, "q4_0": Q4_0, "q4_1": Q4_1, "q8_0": Q8_0}
_BOARDS = ("rpi5", "rpi4", "rk3566", "orangepi-pc", "bpi-f3", "visionfive2", "a720")


@pytest.mark.parametrize(
    ("board", "form", "weights"),
    few_or_all(
        itertools.product(_BOARDS, _FORMS, (None, "int8", "int4")),
        [("rpi5", "q4_0", None), ("rpi4", "f16", None), ("rpi5", "f16", "int8")],
    ),
)
def test_chunks_read_the_weights_that_a_token_reads(
    tmp_path: Path, board: str, form: str, weights: str | None
) -> None:
    path = random_model(kind=_FORMS[form]).write(tmp_path / "llm.gguf")
    profile, file, sizes = load_board(board), WeightsFile(), [0]
    for rows in (1, 12):
        options = CompileOptions(shapes={"tokens": (1, rows)}, weights=weights, threads=1)
        plan_graph(prepare(path, profile, options), profile, options, file)
        file.end_variant()
        sizes.append(len(file.bytes()))
    assert sizes[2] < 1.15 * sizes[1]


def test_a_plan_that_is_compared_holds_no_weights(tmp_path: Path) -> None:
    path = random_model(kind=Q8_0).write(tmp_path / "llm.gguf")
    profile, options = load_board("rpi5"), CompileOptions()
    graph = prepare(path, profile, options).graph
    plans = [plan_of(graph, profile, options, WeightsFile(kept))[1] for kept in (True, False)]
    assert plans[0].lowered.steps == plans[1].lowered.steps
    assert plans[0].memory == plans[1].memory
    assert len(plans[0].lowered.weights) > 1 << 16 and not plans[1].lowered.weights


@pytest.mark.slow
def test_a_model_whose_chunks_need_too_much_memory_reads_tokens(tmp_path: Path) -> None:
    model = with_tokenizer(random_model(kind=Q8_0))
    model.about["llama.context_length"] = 512
    path, cache = model.write(tmp_path / "llm.gguf"), 2 * 2 * 2 * 512 * 16 * 4
    options = CompileOptions(memory_limit=cache + (8 << 10))
    (made,) = compile_variants(path, load_board("local"), options=options)
    note = made.notes[-1]
    assert note.startswith("prompts are read token by token: llm: operator ")
    assert "expected an arena of at most 270336 bytes" in note
    with pytest.raises(InputError, match="expected an arena of at most") as raised:
        compile_variants(path, load_board("local"), options=replace(options, memory_limit=cache))
    assert "tokens=1" not in str(raised.value)


def test_a_language_model_has_a_variant_for_chunks(tmp_path: Path) -> None:
    model = with_tokenizer(random_model(kind=Q8_0))
    model.about["llama.context_length"] = 512
    path, options = model.write(tmp_path / "llm.gguf"), CompileOptions()
    found = with_chunks(path, options)
    assert [*found.shapes.values(), *found.more_shapes[0].values()] == [(1, 1), (1, 32)]
    for other in (
        replace(options, task="none"),
        replace(options, context_tokens=63),  # not worth it
        replace(options, context_tokens=1000),  # refused later
        replace(options, shapes={"tokens": (1, 1)}),
    ):
        assert with_chunks(path, other) is other
    silent = random_model(kind=Q8_0).write(tmp_path / "silent.gguf")  # without a tokenizer
    assert with_chunks(silent, options) is options
