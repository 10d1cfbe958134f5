"""Language models in GGUF files compute what their publications say, token by token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model, outline_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.options import DecoderOptions
from edgekit.host.errors import InputError
from tests.support.gguf_files import (
    BF16,
    CONTEXT,
    F16,
    F32,
    Q4_0,
    Q4_1,
    Q8_0,
    WORDS,
    Array,
    logits_of,
    random_model,
)

_TOKENS = (5, 17, 3, 3, 90, 41, 8, 60)
_FAMILIES = ("gemma", "gemma2", "gemma3", "llama", "qwen2", "qwen3")


def stepped(graph: Graph, tokens: tuple[int, ...]) -> Array:
    """The logits behind each of the tokens that the graph takes together, f32 [steps, words]."""
    states = {name: state.initial for name, state in graph.states.items()}
    rows, count = [], graph.tensors["tokens"].shape[1]
    for at in range(0, len(tokens), count):
        some = np.array([tokens[at : at + count]], np.int32)
        given = {"tokens": some, "position": np.array([at], np.int32)}
        done = evaluate(graph, given, states)
        rows.append(done.outputs["logits"][0])
        states = done.states
    return np.array(rows)


@pytest.mark.parametrize("family", _FAMILIES)
def test_each_family_computes_its_network(family: str, tmp_path: Path) -> None:
    model = random_model(family, tied=family != "qwen3")
    graph = import_model(model.write(tmp_path / "m.gguf"))
    wanted = logits_of(model, _TOKENS)
    np.testing.assert_allclose(stepped(graph, _TOKENS), wanted, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_several_tokens_are_read_at_a_time(family: str, tmp_path: Path) -> None:
    model = random_model(family)
    file = model.write(tmp_path / "m.gguf")
    graph = import_model(file, {"tokens": (1, 4)}, decoder=DecoderOptions(rows=4))
    wanted = logits_of(model, _TOKENS)[3::4]
    np.testing.assert_allclose(stepped(graph, _TOKENS), wanted, atol=2e-5 * np.abs(wanted).max())
    with pytest.raises(InputError, match=f"expected 1 to {CONTEXT} tokens, which the model keeps"):
        import_model(file, decoder=DecoderOptions(rows=CONTEXT + 1))
    with pytest.raises(
        InputError, match="expected --input-shape tokens=1,N for a GGUF file, found x"
    ):
        import_model(file, {"x": (1, 4)})


@pytest.mark.parametrize("kind", [F16, BF16, Q8_0, Q4_0, Q4_1])
def test_values_are_those_of_the_file(kind: int, tmp_path: Path) -> None:
    model = random_model(kind=kind)
    file, wanted = model.write(tmp_path / "m.gguf"), logits_of(model, _TOKENS)
    floats = stepped(import_model(file, decoder=DecoderOptions(floats=True)), _TOKENS)
    np.testing.assert_allclose(floats, wanted, atol=2e-5 * np.abs(wanted).max())
    made = stepped(import_model(file), _TOKENS)
    cosine = (made * wanted).sum() / np.linalg.norm(made) / np.linalg.norm(wanted)
    assert cosine > (0.999 if kind in (Q8_0, Q4_0, Q4_1) else 0.999999)


def test_quantized_weights_stay_as_they_are(tmp_path: Path) -> None:
    for kind, low, high in ((Q8_0, -127, 127), (Q4_0, -8, 7)):
        model = random_model(kind=kind)
        graph = import_model(model.write(tmp_path / "m.gguf"))
        found = graph.tensors["blk.1.ffn_up.weight"]
        scale = graph.tensors["blk.1.ffn_up.scale"]
        assert found.data is not None and scale.data is not None and found.dtype.value == "s8"
        assert low <= found.data.min() and found.data.max() <= high
        groups = found.data.reshape(*scale.data.T.shape, 32) * scale.data.T[:, :, None]
        np.testing.assert_array_equal(
            groups.reshape(found.shape), model.values["blk.1.ffn_up.weight"]
        )


def test_minimums_of_groups_are_kept(tmp_path: Path) -> None:
    model = random_model(kind=Q4_1)
    graph = import_model(model.write(tmp_path / "m.gguf"))
    values, scale, offset = (
        graph.tensors[f"blk.1.ffn_up.{part}"].data for part in ("weight", "scale", "weight.offset")
    )
    assert values is not None and scale is not None and offset is not None
    assert values.min() >= -8 and values.max() <= 7
    groups = values.reshape(*offset.shape, 32) * scale.T[:, :, None] + offset[:, :, None]
    wanted = model.values["blk.1.ffn_up.weight"]
    np.testing.assert_allclose(groups.reshape(wanted.shape), wanted, atol=1e-6)


def test_a_cache_has_the_context_that_is_asked_for(tmp_path: Path) -> None:
    file = random_model().write(tmp_path / "m.gguf")
    graph = import_model(file, decoder=DecoderOptions(7))
    assert {state.initial.shape for state in graph.states.values()} == {(2 * 7, 16)}
    (note,) = import_model(file).notes
    assert note.startswith(f"keeps up to {CONTEXT} tokens of {CONTEXT}; --context N")
    for wrong in (0, -3, CONTEXT + 1):
        with pytest.raises(InputError, match=f"--context: expected 1 to {CONTEXT} tokens"):
            import_model(file, decoder=DecoderOptions(wrong))


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_cache_of_bytes_gives_nearly_the_same(family: str, tmp_path: Path) -> None:
    model = random_model(family)
    file, wanted = model.write(tmp_path / "m.gguf"), logits_of(model, _TOKENS)
    graph = import_model(file, decoder=DecoderOptions(cache="int8"))
    made = stepped(graph, _TOKENS)
    cosines = (made * wanted).sum(1) / np.linalg.norm(made, axis=1) / np.linalg.norm(wanted, axis=1)
    assert 0.9995 < cosines.min() < 0.9999999
    assert (made.argmax(1) == wanted.argmax(1)).all()
    several = import_model(file, {"tokens": (1, 4)}, decoder=DecoderOptions(rows=4, cache="int8"))
    assert several.states.keys() == graph.states.keys()
    np.testing.assert_allclose(stepped(several, _TOKENS), made[3::4], atol=5e-2)
    plain, bytes_each = import_model(file).states.values(), 16 * 4
    kept = sum(state.initial.nbytes for state in graph.states.values())
    assert kept * bytes_each == sum(state.initial.nbytes for state in plain) * (16 + 4)


def test_the_outline_counts_what_the_file_has(tmp_path: Path) -> None:
    model = random_model(kind=F32)
    outline = outline_model(model.write(tmp_path / "m.gguf"))
    assert outline.parameters == sum(value.size for value in model.values.values())
    assert outline.parameter_bytes == 4 * outline.parameters
    assert outline.outputs[0].shape == (1, WORDS)
