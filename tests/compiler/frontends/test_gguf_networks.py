"""Folders of Hugging Face compute what transformers computes from them, which wrote networks.json:

python -m tests.compiler.frontends.test_gguf_networks    # needs: pip install torch transformers
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.gguf.hub import convert
from edgekit.host.compiler.frontends.gguf.hub_names import ARCHITECTURES
from edgekit.host.compiler.options import DecoderOptions
from edgekit.host.errors import InputError
from tests.compiler.frontends.test_gguf import stepped
from tests.compiler.frontends.test_gguf_hub import _write_tensors, hub_tokenizer
from tests.support.architectures import ARCHS, SCALINGS
from tests.support.decoder_networks import logits_of
from tests.support.gguf_files import F32, WORDS, Array, random_model
from tests.support.random_decoders import random_decoder

_RECORD = Path(__file__).with_name("networks.json")
_TOKENS = (5, 17, 3, 3, 90, 41, 8, 60)
_USUAL = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 24,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
_LONG = {"type": "longrope", "short_factor": [1, 1.5, 2], "long_factor": [4, 4, 4]}
_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bitnet": ("bitnet", {}),
    "cohere": ("cohere", {}),
    "falcon": ("falcon", {}),
    "gemma2_scalar": ("gemma2", {"head_dim": 16, "query_pre_attn_scalar": 8, "sliding_window": 5}),
    "gemma3": (
        "gemma3_text", {"head_dim": 16, "sliding_window": 5, "num_hidden_layers": 6},
    ),
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24}),
    "gpt_neox": ("gpt_neox", {}),
    "gpt_neox_in_turn": ("gpt_neox", {"use_parallel_residual": False}),
    "granite": (
        "granite", {"embedding_multiplier": 12.0, "logits_scaling": 8.0,
                    "residual_multiplier": 0.22, "attention_multiplier": 0.05},
    ),
    "llama_bias": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "olmo2": ("olmo2", {}),
    "phi": ("phi", {}),
    "phi3_long": (
        "phi3", {"partial_rotary_factor": 0.75, "original_max_position_embeddings": 12,
                 "rope_scaling": {**_LONG, "partial_rotary_factor": 0.75}},
    ),
    "smollm3": ("smollm3", {"num_hidden_layers": 4}),
    "stablelm": ("stablelm", {}),
    "starcoder2": ("starcoder2", {}),
}  # fmt: skip


def _weights(shapes: dict[str, list[int]]) -> dict[str, Array]:
    """Random ones for tensors of these names."""
    rng, made = np.random.default_rng(0), dict[str, Array]()
    for name, shape in sorted(shapes.items()):
        value = rng.standard_normal(shape) * (1 / math.sqrt(shape[-1]) if len(shape) > 1 else 0.2)
        scale = len(shape) == 1 and name.endswith("weight") and "bias" not in name
        made[name] = (value + scale).astype(np.float32)
    return made


def _folder(path: Path, case: dict[str, Any], **changes: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({**case["config"], **changes}))
    (path / "tokenizer.json").write_text(json.dumps(hub_tokenizer()))
    _write_tensors(path / "model.safetensors", _weights(case["shapes"]))
    return path


def _recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_RECORD.read_text())[name]
    return found


@pytest.mark.parametrize("name", _CASES)
def test_networks_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    case = _recorded(name)
    convert(_folder(tmp_path / "llm", case), tmp_path / "m.gguf")
    context = min(24, len(_TOKENS) + 4)
    made = stepped(import_model(tmp_path / "m.gguf", decoder=DecoderOptions(context)), _TOKENS)
    wanted = np.array(case["logits"])
    np.testing.assert_allclose(made[-1], wanted, atol=2e-5 * np.abs(wanted).max())


def test_some_tokens_at_a_time_are_the_same(tmp_path: Path) -> None:
    for name in ("gpt2", "gpt_neox", "falcon", "olmo2"):
        case = _recorded(name)
        convert(_folder(tmp_path / name, case), tmp_path / "m.gguf")
        graph = import_model(
            tmp_path / "m.gguf", {"tokens": (1, 4)}, decoder=DecoderOptions(rows=4)
        )
        wanted = np.array(case["logits"])
        made = stepped(graph, _TOKENS)[-1]
        np.testing.assert_allclose(made, wanted, atol=2e-5 * np.abs(wanted).max())


def test_angles_for_long_texts_are_not_used(tmp_path: Path) -> None:
    """Beyond the length that the short ones were made for."""
    convert(_folder(tmp_path / "llm", _recorded("phi3_long")), tmp_path / "m.gguf")
    with pytest.raises(InputError, match="expected 1 to 12 tokens, the most"):
        import_model(tmp_path / "m.gguf", decoder=DecoderOptions(13))


def test_no_text_is_longer_than_a_window_of_all_layers(tmp_path: Path) -> None:
    model = random_model("phi3")
    model.about["phi3.attention.sliding_window"] = 7
    file = model.write(tmp_path / "m.gguf")
    with pytest.raises(InputError, match="expected 1 to 7 tokens, the most"):
        import_model(file, decoder=DecoderOptions(8))


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("falcon", {"alibi": True}, "alibi: expected false, found true"),
        ("falcon", {"new_decoder_architecture": True}, "new_decoder_architecture: expected false"),
        ("stablelm", {"qk_layernorm": True}, "qk_layernorm: expected false, found true"),
        ("gpt2", {"activation_function": "relu"}, "hidden_act: expected gelu_tanh, found 'relu'"),
        (
            "gpt_neox",
            {"partial_rotary_factor": 7},
            "partial_rotary_factor: expected a number up to 1",
        ),
        ("smollm3", {"no_rope_layers": [1, 0, 1, 0]}, "no_rope_layers: expected one in 4"),
        ("gemma3", {"layer_types": ["full_attention"] * 6}, "layer_types: expected one in 6"),
        ("phi3_long", {"rope_scaling": {"type": "longrope"}}, "short_factor: expected a list"),
        (
            "bitnet",
            {"quantization_config": {"quant_method": "awq"}},
            "quantization_config: expected weights as floats, found 'awq'",
        ),
    ],
)
def test_other_forms_of_a_network_are_refused(
    name: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = _folder(tmp_path / "llm", _recorded(name), **changes)
    with pytest.raises(InputError, match=re.escape(said)):
        convert(folder, tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"granite.logit_scale": 0.0}, "logit_scale: expected a number besides 0"),
        ({"granite.use_parallel_residual": 3}, "expected true or false, found 3"),
        ({"granite.rope.dimension_count": 4}, "an even number, all of them, is rotated"),
        ({"granite.expert_count": 8}, "expert_count: expected a network without experts, found 8"),
        ({"granite.rope.scaling.type": "dynamic"}, "none, linear or yarn, by a factor above 0"),
        ({"granite.rope.scaling.factor": -1.0}, "by a factor above 0, found 'linear' by -1"),
    ],
)
def test_metadata_that_do_not_fit_are_named(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    model = random_model("granite")
    model.about |= changes
    with pytest.raises(InputError, match=said):
        import_model(model.write(tmp_path / "m.gguf"))


@pytest.mark.parametrize("name", [*ARCHS])
def test_files_of_each_architecture_compute_its_network(name: str, tmp_path: Path) -> None:
    """With all ways in which angles are scaled, as far as it has angles."""
    for seed, scaling in enumerate(SCALINGS if ARCHS[name].rope else ("",)):
        if (name, scaling) == ("gemma3", "yarn"):
            continue
        made = random_decoder(name, (F32,), scaling, seed)
        words = len(made.model.values["token_embd.weight"])
        tokens = tuple(token % words for token in _TOKENS)
        graph = import_model(made.model.write(tmp_path / "m.gguf"))
        wanted = logits_of(made, tokens)
        found = stepped(graph, tokens)
        np.testing.assert_allclose(found, wanted, atol=3e-5 * np.abs(wanted).max(), err_msg=scaling)


def test_angles_of_windows_are_not_scaled_by_yarn(tmp_path: Path) -> None:
    made = random_decoder("gemma3", (F32,), "yarn", 0)
    with pytest.raises(InputError, match=r"rope.scaling.type: expected none or linear for a"):
        import_model(made.model.write(tmp_path / "m.gguf"))


def test_tensors_that_are_missing_or_no_factors_are_named(tmp_path: Path) -> None:
    model = random_model()
    del model.tensors["blk.1.ffn_up.weight"]
    with pytest.raises(InputError, match=r"expected a tensor blk.1.ffn_up.weight, found none"):
        import_model(model.write(tmp_path / "m.gguf"))
    made = random_decoder("llama", (F32,), "factors", 0).model
    factors = made.tensors["rope_freqs.weight"]
    factors.data = bytes(len(factors.data))
    with pytest.raises(InputError, match=r"rope_freqs.weight: expected finite values above 0"):
        import_model(made.write(tmp_path / "m.gguf"))


def test_each_kind_of_folder_is_known() -> None:
    known = {kind for kind, _ in _CASES.values()} | {"gemma", "mistral", "qwen2", "qwen3"}
    assert known == {*ARCHITECTURES}


def _record() -> None:
    import torch
    import transformers

    made = {}
    for name, (kind, changes) in _CASES.items():
        config = transformers.AutoConfig.for_model(kind, **{**_USUAL, **changes})
        model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
        kept = model.state_dict()
        for each in model._tied_weights_keys or () if config.tie_word_embeddings else ():
            kept.pop(each, None)
        shapes = {key: list(value.shape) for key, value in kept.items()}
        values = {key: torch.from_numpy(each) for key, each in _weights(shapes).items()}
        model.load_state_dict(values, strict=False)
        with torch.no_grad():
            logits = model(torch.tensor([_TOKENS])).logits[0, -1]
        about = {key: value for key, value in config.to_diff_dict().items()
                 if key not in ("transformers_version", "architectures")}  # fmt: skip
        about["model_type"] = kind
        made[name] = {
            "config": about,
            "shapes": shapes,
            "logits": [float(f"{each:.7g}") for each in logits],
        }
    lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in made.items()]
    _RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    _record()
