"""Transformers for text and speech: encoders, and single steps of decoders with their caches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    MoonshineConfig,
    MoonshineModel,
    WhisperConfig,
    WhisperModel,
)


class Encoder(nn.Module):
    """An encoder of transformers whose first result is returned as a tensor."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.body(*inputs, return_dict=False)[0]


def bert(layers: int, width: int, heads: int) -> nn.Module:
    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    return Encoder(BertModel(config, add_pooling_layer=False))


def whisper_encoder(layers: int, width: int) -> nn.Module:
    config = WhisperConfig(
        d_model=width,
        encoder_layers=layers,
        decoder_layers=1,
        encoder_attention_heads=width // 64,
        encoder_ffn_dim=4 * width,
    )
    return Encoder(WhisperModel(config).encoder)


def moonshine_encoder() -> nn.Module:
    """Moonshine tiny on two seconds of sound."""
    config = MoonshineConfig(
        hidden_size=288, intermediate_size=1152, encoder_num_hidden_layers=6,
        decoder_num_hidden_layers=1, encoder_num_attention_heads=8, decoder_num_attention_heads=8,
    )  # fmt: skip
    return Encoder(MoonshineModel(config).encoder)


def _heads(x: Tensor, size: int) -> Tensor:
    """[1, tokens, width] as [1, heads, tokens, size]."""
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


class _CrossLayer(nn.Module):
    """A layer of Whisper's decoder: attention to earlier tokens and to the encoder's result."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.q, self.cross_out = nn.Linear(width, width), nn.Linear(width, width)
        wide = nn.Linear(width, 4 * width)
        self.wide = nn.Sequential(wide, nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, cache: Tensor, cross: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (_heads(t, self.size) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        made = torch.cat((k, v))
        cache = torch.cat((cache, made), 2)
        x = x + self.out(_attend(q, cache[:1], cache[1:]))
        q = _heads(self.q(self.norms[1](x)), self.size)
        x = x + self.cross_out(_attend(q, cross[:1], cross[1:]))
        return x + self.wide(self.norms[2](x)), made


class WhisperStep(nn.Module):
    """One token of Whisper's decoder; returns logits, and what the cache gets."""

    def __init__(self, layers: int, width: int, tokens: int = 51865) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.places = nn.Embedding(448, width)
        self.layers = nn.ModuleList(_CrossLayer(width, 64) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, token: Tensor, place: Tensor, cache: Tensor, cross: Tensor
    ) -> tuple[Tensor, Tensor]:
        x, made = self.embedding(token) + self.places(place), []
        for i, layer in enumerate(self.layers):
            x, more = layer(x, cache[i], cross[i])
            made.append(more)
        return self.norm(x) @ self.embedding.weight.T, torch.stack(made)


class _Rms(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions: pairs of halves are turned by angles."""
    one, two = x.chunk(2, -1)
    return x * turn[0] + torch.cat((-two, one), -1) * turn[1]


class _GatedLayer(nn.Module):
    """A layer of Llama or Qwen3 (`normed`: norms of queries and keys)."""

    def __init__(
        self, width: int, heads: int, groups: int, size: int, wide: int, normed: bool
    ) -> None:
        super().__init__()
        self.size, self.shared = size, heads // groups
        self.norms = nn.ModuleList(_Rms(width) for _ in range(2))
        self.q_norm, self.k_norm = (_Rms(size) if normed else nn.Identity() for _ in range(2))
        self.q, self.out = (
            nn.Linear(width, heads * size, bias=False),
            nn.Linear(heads * size, width, bias=False),
        )
        self.k, self.v = (nn.Linear(width, groups * size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, wide, bias=False) for _ in range(2))
        self.down = nn.Linear(wide, width, bias=False)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Tensor
    ) -> tuple[Tensor, Tensor]:
        y = self.norms[0](x)
        q = _turned(self.q_norm(_heads(self.q(y), self.size)), turn)
        k = _turned(self.k_norm(_heads(self.k(y), self.size)), turn)
        made = torch.cat((k, _heads(self.v(y), self.size)))
        keys, values = torch.cat((cache, made), 2).repeat_interleave(self.shared, 1).chunk(2)
        x = x + self.out(_attend(q, keys, values))
        y = self.norms[1](x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y)), made


class GatedStep(nn.Module):
    """One token of a decoder as SmolLM's or Qwen3's; returns logits, and what the cache gets."""

    def __init__(
        self, layers: int, width: int, heads: int, groups: int, size: int, wide: int, tokens: int,
        normed: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(
            _GatedLayer(width, heads, groups, size, wide, normed) for _ in range(layers)
        )
        self.norm = _Rms(width)
        powers = torch.arange(0, size, 2) / size
        self.register_buffer("speeds", 10000.0**-powers)

    def forward(self, token: Tensor, place: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        angles = place.float().view(1, 1, 1, 1) * self.speeds
        angles = torch.cat((angles, angles), -1)
        turn = angles.cos(), angles.sin()
        x, made = self.embedding(token), []
        for i, layer in enumerate(self.layers):
            x, more = layer(x, turn, cache[i])
            made.append(more)
        return self.norm(x) @ self.embedding.weight.T, torch.stack(made)
