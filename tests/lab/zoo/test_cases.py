"""Inputs of comparisons."""

from __future__ import annotations

import wave

import numpy as np
import pytest
from PIL import Image

from edgekit.host.lab.zoo.cases import InputSpec, ZooInputs, load_samples, make_cases

_PICTURE = np.arange(40 * 60 * 3, dtype=np.uint8).reshape(40, 60, 3)
_SAMPLES = ZooInputs(pictures=(_PICTURE,), sounds=(np.linspace(0, 1, 990).reshape(99, 10),))


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8"])
@pytest.mark.parametrize("shape", [(1, 8, 8, 3), (1, 49, 10, 1), (1, 1960), (1, 3, 40)])
def test_cases_have_the_models_shape_and_type_and_differ(dtype, shape):
    cases = make_cases([InputSpec(shape, dtype)], 12, _SAMPLES)
    (stacked,) = cases.inputs
    assert stacked.shape == (12, *shape)
    assert stacked.dtype == dtype
    assert len({row.tobytes() for row in stacked}) == 12
    assert np.isfinite(stacked.astype(float)).all()


def test_extremes_are_among_the_cases():
    (stacked,) = make_cases([InputSpec((1, 5), "int8")], 8, ZooInputs()).inputs
    assert (stacked == -128).all(axis=(1, 2)).any()
    assert (stacked == 127).all(axis=(1, 2)).any()
    (floats,) = make_cases([InputSpec((1, 5), "float32")], 8, ZooInputs()).inputs
    assert (floats == -1).all(axis=(1, 2)).any()
    assert (floats == 1).all(axis=(1, 2)).any()


def test_a_picture_is_used_where_it_fits():
    (stacked,) = make_cases([InputSpec((1, 40, 40, 3), "uint8")], 2, _SAMPLES).inputs
    assert (stacked[1] == _PICTURE[np.newaxis, :, 10:50]).all()


def test_the_same_seed_gives_the_same_values():
    def make(seed: int) -> np.ndarray:
        return make_cases([InputSpec((1, 9), "float32")], 4, ZooInputs(), seed=seed).inputs[0]

    assert (make(1) == make(1)).all()
    assert (make(1) != make(2)).any()


def test_sequences_follow_one_another():
    cases = make_cases([InputSpec((1, 3, 10), "float32")], 3, _SAMPLES, steps=5)
    assert cases.inputs[0].shape == (15, 1, 3, 10)
    assert cases.steps == 5
    sound = cases.inputs[0][10:].reshape(-1)
    assert (np.diff(sound[:100]) > 0).all()


def test_a_recorded_sequence_is_used_by_the_model_it_fits():
    recorded = np.arange(6 * 5, dtype=np.int8).reshape(6, 1, 5)
    samples = ZooInputs(sequences=(recorded,))
    cases = make_cases([InputSpec((1, 5), "int8")], 2, samples, steps=6)
    assert (cases.inputs[0][6:] == recorded).all()
    other = make_cases([InputSpec((1, 5), "uint8")], 2, samples, steps=6)
    assert (other.inputs[0][6:] == 0).all()


def test_pictures_and_sounds_are_read(tmp_path):
    Image.fromarray(_PICTURE).save(tmp_path / "p.png")
    with wave.open(str(tmp_path / "s.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        tone = np.sin(np.arange(8000) * 2 * np.pi * 1000 / 16000) * 8000
        file.writeframes(tone.astype("<i2").tobytes())
    samples = load_samples([tmp_path / "p.png"], [tmp_path / "s.wav"])
    assert (samples.pictures[0] == _PICTURE).all()
    spectra = samples.sounds[0]
    assert (spectra.min(), spectra.max()) == (0, 1)
    assert (spectra.argmax(axis=1) == 20).all()  # 1 kHz in bins of 50 Hz
