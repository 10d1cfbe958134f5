"""Trains a small language model, and measures its perplexity with weights of few bits.

The text is Python's manual, which each interpreter has (`pydoc_data`); a tenth of it is held out.
Products are computed as the kernels do: rows of activations in 8 bits, channels beyond 6 apart.
Needs torch and transformers:

    pip install torch transformers
    PYTHONPATH=src python scripts/small_language_model.py train -o model --minutes 8
    PYTHONPATH=src python scripts/small_language_model.py measure model

The folder that `train` writes is one of Hugging Face: `edgekit compile model -o model.gguf`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc_data import topics
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from edgekit.host.compiler.transforms.passes.weight_scales import (
    MOST,
    compensated,
    rounded,
    scales_of,
    whole_scales_of,
)

_WORDS, _LENGTH, _BATCH, _HELD = 1024, 64, 16, 160
_RATE, _WARM = 2e-3, 50
_OUTLIER, _GROUP, _SCALE_BITS = 6.0, 32, 16
_TOKENIZER = "tokenizer.json"
Layer = torch.nn.Linear
Product = Callable[[torch.Tensor], torch.Tensor]


def _text() -> str:
    return "\n\n".join(topics.topics[name] for name in sorted(topics.topics))


def _parts(tokenizer: Tokenizer) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens to train on, and those held out."""
    tokens = torch.tensor(tokenizer.encode(_text()).ids)
    cut = len(tokens) * 9 // 10
    return tokens[:cut], tokens[cut:]


def train(folder: Path, minutes: float) -> None:
    torch.manual_seed(1)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    end = ["<|endoftext|>"]
    how = trainers.BpeTrainer(vocab_size=_WORDS, initial_alphabet=letters, special_tokens=end)
    tokenizer.train_from_iterator([_text()], how)
    tokens, _ = _parts(tokenizer)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=_WORDS,
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=4 * _LENGTH,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), _RATE, weight_decay=0.05)
    start, step = time.monotonic(), 0
    while (done := (time.monotonic() - start) / 60 / minutes) < 1:
        rate = _RATE * min(1, (step + 1) / _WARM) * max(0.02, (1 + math.cos(math.pi * done)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = rate
        first = torch.randint(0, len(tokens) - _LENGTH - 1, (_BATCH,))
        rows = torch.stack([tokens[i : i + _LENGTH] for i in first])
        loss = model(input_ids=rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
    model.save_pretrained(folder)
    tokenizer.save(str(folder / _TOKENIZER))
    print(f"{step} steps, loss {loss.item():.3f}")


def _layers(model: Any) -> Iterator[Layer]:
    """All products, in the order in which they run."""
    for block in model.model.layers:
        attention, wide = block.self_attn, block.mlp
        yield from (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
        yield from (wide.gate_proj, wide.up_proj, wide.down_proj)
    yield model.lm_head


def _product(weights: np.ndarray[Any, Any], split: bool) -> Product:
    """x [..., k] by dequantized weights [n, k], with rows of x in 8 bits."""
    matrix = torch.from_numpy(weights.astype(np.float32)).T.contiguous()

    def multiply(x: torch.Tensor) -> torch.Tensor:
        apart = torch.where(x.abs() > _OUTLIER, x, 0) if split else torch.zeros_like(x)
        rest = x - apart
        scale = rest.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30) / 127
        return (torch.round(rest / scale) * scale + apart) @ matrix

    return multiply


def _quantize(model: Any, bits: Any, group: int, rows: torch.Tensor | None, split: bool) -> None:
    """Replaces all products; with `rows`, tokens, weights are fitted to what they are given."""
    most = MOST[bits]
    for layer in _layers(model):
        weights = layer.weight.detach().numpy().astype(np.float32)
        depth = group or weights.shape[1]
        if rows is None:
            scale = whole_scales_of(weights, depth, most)
            values = rounded(weights, scale, most)
        else:
            given = _inputs_of(model, layer, rows)
            moment = given.T @ given / len(given)
            scale = scales_of(weights, depth, most, np.diagonal(moment))
            values = compensated(weights, scale, most, moment)
        layer.forward = _product(values * np.repeat(scale, depth, axis=1), split)


def _inputs_of(model: Any, layer: Layer, rows: torch.Tensor) -> np.ndarray[Any, Any]:
    found: list[torch.Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, given: found.append(given[0]))
    with torch.no_grad():
        model(input_ids=rows)
    hook.remove()
    return torch.cat(found).reshape(-1, layer.in_features).numpy().astype(np.float64)


def _perplexity(model: Any, tokens: torch.Tensor) -> float:
    rows = tokens[: _HELD * _LENGTH].reshape(-1, _LENGTH)
    with torch.no_grad():
        logits = model(input_ids=rows).logits[:, :-1]
    loss = functional.cross_entropy(logits.reshape(-1, _WORDS), rows[:, 1:].reshape(-1))
    return math.exp(loss.item())


def measure(folder: Path) -> None:
    """Prints rows of docs/results/small_language_model.csv, without machine and commit."""
    tokens, held = _parts(Tokenizer.from_file(str(folder / _TOKENIZER)))
    rows = tokens[: 4 * _BATCH * _LENGTH].reshape(-1, _LENGTH)
    print("weights,bits,perplexity,of_int8")
    plain = _perplexity(LlamaForCausalLM.from_pretrained(folder), held)
    forms = [
        ("int8", "int8", 0, None, True),
        (f"int4 in groups of {_GROUP}", "int4", _GROUP, None, True),
        (f"int4 in groups of {_GROUP}, fitted", "int4", _GROUP, rows, True),
        (f"int4 in groups of {_GROUP}, fitted, no outliers apart", "int4", _GROUP, rows, False),
    ]
    eight = 0.0
    for name, bits, group, given, split in forms:
        model = LlamaForCausalLM.from_pretrained(folder)
        _quantize(model, bits, group, given, split)
        found = _perplexity(model, held)
        eight = eight or found
        if bits == "int8":
            print(f"f32,32,{plain:.3f},{plain / eight:.4f}")
        size = 8 if bits == "int8" else 4 + _SCALE_BITS / _GROUP
        print(f'"{name}",{size:g},{found:.3f},{found / eight:.4f}', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train")
    one.add_argument("-o", "--output", type=Path, required=True)
    one.add_argument("--minutes", type=float, default=8.0)
    commands.add_parser("measure").add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.command == "train":
        train(given.output, given.minutes)
    else:
        measure(given.folder)


if __name__ == "__main__":
    main()
