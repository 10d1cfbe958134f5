"""A language model with quantized weights, token by token on each kind of core under qemu."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import Cache, CompileOptions
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.support.gguf_files import Q4_0, random_model
from tests.support.kernel_runs import build
from tests.support.places import few_or_all

pytestmark = pytest.mark.cross

_TOKENS = np.array([5, 17, 3, 3, 90], np.int32)


@pytest.mark.parametrize(
    ("profile", "cache"),
    few_or_all(
        itertools.product(("a57", "a7", "a76", "bpi-f3"), ("f32", "int8")),
        [("a57", "f32"), ("a57", "int8"), ("bpi-f3", "int8")],
    ),
)
def test_logits_are_those_of_the_reference(
    profile: str, cache: Cache, virtual_board: Any, tmp_path: Any
) -> None:
    file, board = random_model(kind=Q4_0).write(tmp_path / "m.gguf"), load_board(profile)
    made = prepare(file, board, CompileOptions(kv_cache=cache))
    folder = build(made.graph, board, tmp_path / "release")
    positions = np.arange(len(_TOKENS), dtype=np.int32)
    cases = Cases((_TOKENS[:, None, None], positions[:, None]), steps=len(_TOKENS))
    (found,) = virtual_board(profile).run(folder, cases, tmp_path)
    states = {name: state.initial for name, state in made.imported.states.items()}
    for row, token, position in zip(found, _TOKENS, positions, strict=True):
        given = {"tokens": token.reshape(1, 1), "position": position.reshape(1)}
        done = evaluate(made.imported, given, states)
        wanted, states = done.outputs["logits"], done.states
        np.testing.assert_allclose(row, wanted, atol=1e-3 * np.abs(wanted).max())
