"""A decoder with a stateful cache, token by token on each kind of core under qemu."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.support.decoder import TIES, TOKENS, decoded_by_hand, decoder_model
from tests.support.kernel_runs import build
from tests.support.onnx_models import save
from tests.support.places import few_or_all

pytestmark = pytest.mark.cross


@pytest.mark.parametrize("profile", few_or_all(["a57", "a76", "bpi-f3"], ["a57"]))
def test_a_cache_lives_from_run_to_run(profile, virtual_board, tmp_path):
    file, board = save(decoder_model(), tmp_path), load_board(profile)
    made = prepare(file, board, CompileOptions(states=TIES))
    folder = build(made.graph, board, tmp_path / "release")
    cases = Cases((TOKENS[:, None],), steps=len(TOKENS))
    (logits,) = virtual_board(profile).run(folder, cases, tmp_path)
    np.testing.assert_allclose(logits, decoded_by_hand(file, TOKENS), atol=1e-5)
