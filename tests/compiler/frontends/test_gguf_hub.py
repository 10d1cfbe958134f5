"""Folders of Hugging Face become GGUF files with the same network and tokenizer."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.gguf.file import read_gguf
from edgekit.host.compiler.frontends.gguf.hub import convert, is_decoder_folder
from edgekit.host.compiler.frontends.gguf.network import network_of
from edgekit.host.compiler.tasks.language import language_file
from edgekit.host.errors import InputError
from tests.compiler.frontends.test_gguf import stepped
from tests.support.gguf_files import WORDS, Array, Model, logits_of, random_model

_TOKENS = (5, 17, 3, 3, 90, 41, 8, 60)
_KINDS = {"llama": "llama", "qwen3": "qwen3", "gemma2": "gemma2", "gemma3": "gemma3_text"}
_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    **{f"attn_{n}": f"self_attn.{n}_proj" for n in "qkv"},
    **{f"ffn_{n}": f"mlp.{n}_proj" for n in ("gate", "up", "down")},
}  # fmt: skip


def _hub_name(name: str, gemma: bool) -> str:
    own, end = name.rsplit(".", 1)
    if not own.startswith("blk."):
        return f"{_NAMES[own]}.{end}"
    _, layer, part = own.split(".")
    around = {"post_attention_norm": "post_attention_layernorm",
              "ffn_norm": "pre_feedforward_layernorm" if gemma else "post_attention_layernorm",
              "post_ffw_norm": "post_feedforward_layernorm"}  # fmt: skip
    return f"model.layers.{layer}.{ {**_NAMES, **around}[part] }.{end}"


def _hub_value(name: str, value: Array, family: str) -> Array:
    """As Hugging Face has it: rotary pairs half a head apart, Gemma's norms less 1."""
    if family.startswith("gemma") and name.endswith("norm.weight"):
        return value - 1
    part = name.split(".")[-2]
    if family != "llama" or part not in ("attn_q", "attn_k"):
        return value
    heads = {"attn_q": 4, "attn_k": 2}[part]
    pairs = value.reshape(heads, -1, 2, value.shape[1])
    return pairs.transpose(0, 2, 1, 3).reshape(value.shape)


def _write_tensors(file: Path, tensors: dict[str, Array]) -> None:
    table, data = {}, b""
    for name, value in tensors.items():
        made = value.astype("<f4").tobytes()
        table[name] = {
            "dtype": "F32", "shape": list(value.shape),
            "data_offsets": [len(data), len(data) + len(made)],
        }  # fmt: skip
        data += made
    head = json.dumps({"__metadata__": {"format": "pt"}, **table}).encode()
    file.write_bytes(struct.pack("<Q", len(head)) + head + data)


def hub_tokenizer(**changes: Any) -> dict[str, Any]:
    """Of bytes, split as GPT-2 does."""
    pieces = [*map(chr, range(33, 33 + WORDS - 6)), "Ġ", "th", "the", "Ġthe"]
    added = [
        {"id": len(pieces) + i, "content": c, "special": True}
        for i, c in enumerate(("<s>", "</s>"))
    ]
    model = {"type": "BPE", "vocab": {p: i for i, p in enumerate(pieces)},
             "merges": ["t h", ["th", "e"], "Ġ the"]}  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "added_tokens": added, "model": model, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, level]},
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [len(pieces)]}}},
        **changes,
    }  # fmt: skip


def hub_folder(path: Path, model: Model, **changes: Any) -> Path:
    path.mkdir(exist_ok=True)
    family = model.family
    own = {k.removeprefix(f"{family}."): v for k, v in model.about.items()}
    config = {
        "model_type": _KINDS[family], "hidden_size": own["embedding_length"],
        "intermediate_size": own["feed_forward_length"], "num_hidden_layers": own["block_count"],
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "rms_norm_eps": own["attention.layer_norm_rms_epsilon"], "rope_theta": 10000.0,
        "max_position_embeddings": own["context_length"], "bos_token_id": WORDS - 2,
        "eos_token_id": [WORDS - 1], "sliding_window": own.get("attention.sliding_window"),
        "attn_logit_softcapping": own.get("attn_logit_softcapping"),
        "final_logit_softcapping": own.get("final_logit_softcapping"),
        **changes,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text(json.dumps(hub_tokenizer()))
    gemma = family.startswith("gemma")
    tensors = {
        _hub_name(n, gemma): _hub_value(n, value, family) for n, value in model.values.items()
    }
    half = len(tensors) // 2  # in two files, as large models are
    _write_tensors(path / "model-1.safetensors", dict([*tensors.items()][:half]))
    _write_tensors(path / "model-2.safetensors", dict([*tensors.items()][half:]))
    return path


@pytest.mark.parametrize("family", _KINDS)
def test_the_network_is_the_same(family: str, tmp_path: Path) -> None:
    model = random_model(family, tied=family != "llama")
    folder = hub_folder(tmp_path / "llm", model)
    assert is_decoder_folder(folder, generates=True)
    convert(folder, tmp_path / "m.gguf")
    wanted = logits_of(model, _TOKENS)
    made = stepped(import_model(tmp_path / "m.gguf"), _TOKENS)
    np.testing.assert_allclose(made, wanted, atol=4e-5 * np.abs(wanted).max())


def test_folders_of_other_networks_make_no_texts(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "llm", random_model(), model_type="mamba")
    assert not is_decoder_folder(folder)
    with pytest.raises(InputError, match=r"model_type: expected one of bitnet, .* found 'mamba'"):
        is_decoder_folder(folder, generates=True)
    folder = hub_folder(tmp_path / "moe", random_model(), architectures=["MixtralForCausalLM"])
    assert is_decoder_folder(folder)
    folder = hub_folder(
        tmp_path / "other", random_model(), model_type="opt", architectures=["OPTForCausalLM"]
    )
    assert not is_decoder_folder(folder, generates=False)
    with pytest.raises(InputError, match=r"found 'opt'; choose .* --task none"):
        is_decoder_folder(folder)


@pytest.mark.parametrize("lost", [0, 2])
def test_parts_of_wider_tensors_are_taken_apart(lost: int, tmp_path: Path) -> None:
    """As Phi-3 has them."""
    model = random_model("llama", tied=False)
    folder = hub_folder(tmp_path / "llm", model, model_type="phi3")
    left = {_hub_name(n, False): _hub_value(n, v, "llama") for n, v in model.values.items()}
    for layer in {name.split(".")[2] for name in left if ".layers." in name}:
        for part, names in (("self_attn.qkv", "qkv"), ("mlp.gate_up", ("gate", "up"))):
            at = f"model.layers.{layer}.{part.split('.')[0]}"
            rows = [left.pop(f"{at}.{name}_proj.weight") for name in names]
            whole = np.concatenate(rows)
            left[f"model.layers.{layer}.{part}_proj.weight"] = whole[: len(whole) - lost]
    (folder / "model-2.safetensors").unlink()
    _write_tensors(folder / "model-1.safetensors", left)
    convert(folder, tmp_path / "m.gguf")
    if lost:
        with pytest.raises(InputError, match=r"attn_qkv.weight: expected shape \[128, 64\], found"):
            import_model(tmp_path / "m.gguf")
        return
    wanted = logits_of(model, _TOKENS)
    made = stepped(import_model(tmp_path / "m.gguf"), _TOKENS)
    np.testing.assert_allclose(made, wanted, atol=4e-5 * np.abs(wanted).max())


def test_the_tokenizer_is_the_same(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "llm", random_model())
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    convert(folder, tmp_path / "m.gguf")
    about = read_gguf(tmp_path / "m.gguf").about
    data, _ = language_file(about, WORDS, 8)
    spec = json.loads(data)
    assert spec["tokenizer"]["pieces"] == about["tokenizer.ggml.tokens"]
    assert len(spec["tokenizer"]["merges"]) == 6 and spec["tokenizer"]["split"] == "digits"
    assert spec["tokenizer"]["before"] == [WORDS - 2] and spec["ends"] == [WORDS - 1]
    assert about["tokenizer.chat_template"] == "{{ messages }}"


def test_angles_of_llama_3_are_divided_for_long_waves(tmp_path: Path) -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
    folder = hub_folder(tmp_path / "llm", random_model(), rope_scaling=scaling)
    convert(folder, tmp_path / "m.gguf")
    file = read_gguf(tmp_path / "m.gguf")
    found = file.data("rope_freqs.weight").view("<f4")
    wanted = []
    for i in range(8):  # one at a time, as Llama's own code does
        frequency = 10000.0 ** (-i / 8)
        wave = 2 * np.pi / frequency
        if wave < 64 / 4:
            wanted.append(1.0)
        elif wave > 64:
            wanted.append(8.0)
        else:
            smooth = (64 / wave - 1) / 3
            wanted.append(frequency / ((1 - smooth) * frequency / 8 + smooth * frequency))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_yarn_says_what_the_configuration_does(tmp_path: Path) -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6,
               "beta_fast": 16, "attention_factor": 0.5}  # fmt: skip
    folder = hub_folder(tmp_path / "llm", random_model(), rope_scaling=scaling)
    convert(folder, tmp_path / "m.gguf")
    network = network_of(read_gguf(tmp_path / "m.gguf"))
    plain = 10000.0 ** -(np.arange(8) / 8)
    turns = 6 * plain / (2 * np.pi)  # within the first length
    assert network.gain == pytest.approx(0.5)
    np.testing.assert_allclose(network.angles[turns < 1 / 16], plain[turns < 1 / 16] / 4)
    assert network.angles[0] == pytest.approx(plain[0])


def _cut(folder: Path) -> None:
    file = folder / "model-2.safetensors"
    file.write_bytes(file.read_bytes()[:-8])


def _retold(old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "model-1.safetensors"
        file.write_bytes(file.read_bytes().replace(old, new, 1))

    return change


def _written(name: str, text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text(text)

    return change


def _tokens(**changes: Any) -> Callable[[Path], None]:
    return _written("tokenizer.json", json.dumps(hub_tokenizer(**changes)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_cut, "beyond its end; it is cut or damaged"),
        (_retold(b'"F32"', b'"I64"'), "expected F32, F16 or BF16, found 'I64'"),
        (_retold(b'"data_offsets": [0, ', b'"data_offsets": [4, '), "found another size of"),
        (_retold(b"{", b"["), "found no JSON table"),
        (_retold(b"q_proj", b"s_proj"), "expected the tensors of a plain llama network, found"),
        (lambda f: (f / "model-1.safetensors").write_bytes(b"\xff" * 9), "a table of"),
        (lambda f: (f / "tokenizer.json").unlink(), "expected tokenizer.json in it, found none"),
        (_written("tokenizer.json", "{"), "expected JSON, found something else"),
        (_tokens(model={"type": "WordLevel"}), "expected BPE or Unigram, found 'WordLevel'"),
        (_tokens(model={"type": "Unigram", "vocab": 3}), "expected a tokenizer as the library"),
        (_tokens(model={"type": "BPE", "vocab": 3}), "expected a tokenizer as the library"),
        (_tokens(normalizer={"type": "Nmt"}), "normalizer: expected one of NFC, NFD"),
        (_tokens(pre_tokenizer={"type": "Split", "pattern": {"Regex": "x"}}),
         "pre_tokenizer: expected ByteLevel, Metaspace or marks for spaces, found Split"),
        (_tokens(pre_tokenizer={"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "x"}},
            {"type": "ByteLevel", "use_regex": False}]}), "expected words split as GPT-2"),
    ],
)  # fmt: skip
def test_damaged_folders_are_named(
    change: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    folder = hub_folder(tmp_path / "llm", random_model())
    change(folder)
    with pytest.raises(InputError) as caught:
        convert(folder, tmp_path / "m.gguf")
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": "x"}, "hidden_size: expected a whole number, found 'x'"),
        ({"rms_norm_eps": None}, "rms_norm_eps: expected a number, found None"),
        ({"rope_scaling": {"rope_type": "dynamic"}}, "rope_scaling: expected linear or llama3"),
        ({"rope_scaling": {"rope_type": "yarn", "mscale": 1}}, "a plain yarn, found mscale in it"),
        ({"num_attention_heads": 3}, "attn_q.weight: expected rows for 3 heads, found 64"),
    ],
)
def test_configurations_that_do_not_fit_are_named(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = hub_folder(tmp_path / "llm", random_model(), **changes)
    with pytest.raises(InputError) as caught:
        convert(folder, tmp_path / "m.gguf")
    assert said in str(caught.value)
