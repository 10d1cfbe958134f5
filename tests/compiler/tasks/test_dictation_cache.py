"""The step of a decoder of speech that keeps a cache, against the decoder for whole texts."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.tasks.dictation_cache import cached_step, sound_states
from tests.support.dictation_models import MOST, dictation_model

_SHAPES = {"input_ids": (1, MOST), "encoder_hidden_states": (1, 50, 12)}


def test_each_token_has_the_logits_of_the_whole_text(tmp_path):
    """What the cache holds behind the token does not matter."""
    dictation_model(tmp_path, cached=True)
    decoder = import_model(tmp_path / "decoder_model.onnx", _SHAPES)
    step = cached_step(tmp_path / "decoder_with_past_model.onnx", decoder, "input_ids", MOST)
    assert step is not None and [*step.states][:2] == [*sound_states(decoder)]
    rng = np.random.default_rng(1)
    text = rng.integers(0, 20, (1, MOST))
    sound = rng.standard_normal(_SHAPES["encoder_hidden_states"]).astype(np.float32)
    whole = evaluate(decoder, {"input_ids": text, "encoder_hidden_states": sound}).outputs
    states = {n: whole.get(n, 7 + state.initial) for n, state in step.states.items()}
    for at in range(MOST):
        place = np.array([at], np.int32)
        made = evaluate(step, {"input_ids": text, "position": place}, states)
        states = {**states, **made.states}
        logits = made.outputs[step.outputs[0]][0, 0]
        assert logits == pytest.approx(whole["scores"][0, at], abs=1e-4)


def test_places_that_the_decoder_does_not_have_are_no_cache(tmp_path):
    for seed in range(2):
        (folder := tmp_path / str(seed)).mkdir()
        dictation_model(folder, seed, cached=True)
    decoder = import_model(tmp_path / "0/decoder_model.onnx", _SHAPES)
    other = tmp_path / "1/decoder_with_past_model.onnx"
    assert cached_step(other, decoder, "input_ids", MOST) is None
    assert cached_step(tmp_path / "0/encoder_model.onnx", decoder, "input_ids", MOST) is None
