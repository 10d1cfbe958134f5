"""GGUF file → the graph of one step of a language model, whose cache of keys and values is its
state.

The networks are implemented from their publications: Llama (Touvron et al., 2023), Qwen 2 and 3
(Qwen Team, 2024 and 2025), Gemma 1 to 3 (Gemma Team, 2024 and 2025), GPT-2 (Radford et al., 2019),
GPT-NeoX (Black et al., 2022), Falcon (Almazrouei et al., 2023), Phi-2 and 3 (Abdin et al., 2024),
StableLM (Bellagente et al., 2024), StarCoder 2 (Lozhkov et al., 2024), Granite (IBM, 2024), OLMo 2
(OLMo Team, 2024), Command R (Cohere, 2024), BitNet (Ma et al., 2024 and 2025), SmolLM3 (Hugging
Face, 2025), InternLM 2 (Cai et al., 2024), MiniCPM (Hu et al., 2024), EXAONE 3 (LG, 2024), ERNIE
4.5 (Baidu, 2025).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.gguf.file import GgufFile, read_gguf
from edgekit.host.compiler.frontends.gguf.network import (
    POSITIONS,
    Act,
    Network,
    context_of,
    network_of,
)
from edgekit.host.compiler.frontends.gguf.weights import Weights
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Array, DType, Graph, Operator, ShapeError, State, Tensor
from edgekit.host.compiler.options import DEFAULT_DECODER, DecoderOptions
from edgekit.host.errors import InputError

TOKENS, POSITION, LOGITS = "tokens", "position", "logits"
EMBEDDINGS, OUTPUT = "token_embd.weight", "output"
_ACTS: dict[Act, Operator] = {
    "silu": ops.Silu(), "gelu": ops.Gelu(), "gelu_tanh": ops.GeluTanh(),
    "relu2": ops.Clip(0.0, math.inf),
}  # fmt: skip


def import_gguf(path: Path, options: DecoderOptions = DEFAULT_DECODER) -> Graph:
    """The graph that maps `tokens`, s32 [1, rows], the first of them at `position`, s32 [1], to
    `logits`, f32 [1, words], of what follows the last.

    It keeps keys and values of up to `options.context` tokens as states. Raises InputError with one
    line that names the file.
    """
    try:
        return _graph_of(read_gguf(path), options)
    except (InputError, ShapeError) as error:
        raise InputError(f"{path.name}: {error}") from error


def _graph_of(file: GgufFile, options: DecoderOptions) -> Graph:
    network, builder = network_of(file), GraphBuilder()
    length = context_of(network, options.context)
    weights = Weights(file, builder, options.floats)
    step = _Step(network, builder, weights, length, options.cache == "int8")
    builder.reserve([TOKENS, POSITION, LOGITS])
    count = options.rows
    if not 1 <= count <= length:
        raise InputError(
            f"--input-shape {TOKENS}=1,{count}: expected 1 to {length} tokens, which the model "
            f"keeps, found {count}"
        )
    inputs = [
        builder.input(TOKENS, (1, count), DType.I32),
        builder.input(POSITION, (1,), DType.I32),
    ]
    logits = step.logits(inputs[0], inputs[1], weights.rows_in(EMBEDDINGS))
    weights.check_all_used()
    kept = "" if options.context else f" of {network.trained}; --context N keeps more or fewer"
    width = " in 8 bits" if step.eight else ""
    builder.note(f"keeps up to {length} tokens{width}{kept}")
    made = builder.finish(file.path.stem, inputs, {LOGITS: logits})
    return replace(made, name=file.path.stem)


@dataclass(frozen=True, eq=False)
class _Place:
    """Where the `count` tokens of a step are: the `position` of the first, `at` of each, `rows` of
    the cache, and angles for all layers and for local ones."""

    count: int
    position: Tensor
    at: Tensor
    rows: Tensor
    turns: list[tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class _Step:
    """Builds the network for the next tokens after others, up to `context` in all. With `eight`,
    keys and values are kept in s8 with a scale for each head of a token."""

    network: Network
    builder: GraphBuilder
    weights: Weights
    context: int
    eight: bool

    def logits(self, tokens: Tensor, position: Tensor, words: int) -> Tensor:
        net, add = self.network, self.builder.emit
        count = tokens.shape[1]
        at = add(ops.Reshape((count,)), tokens)
        x = self.weights.rows(EMBEDDINGS, (words, net.width), at)
        x = self._scaled(x, net.scales.embeddings)
        place = self._place(position, count)
        if POSITIONS in self.weights:
            places = self.weights.rows_in(POSITIONS)
            x = add(ops.Add(), x, self.weights.rows(POSITIONS, (places, net.width), place.at))
        for layer in range(net.layers):
            self.builder.begin(f"layer{layer}")
            x = self._layer(x, layer, place)
        self.builder.begin("output")
        if count > 1:
            last = (1, net.width)
            x = add(ops.StridedSlice((count - 1, 0), (1, 1), last, last), x)
        x = self._normalized(x, "output_norm")
        if f"{OUTPUT}.weight" in self.weights:
            made = self.weights.product(x, OUTPUT, words)
        else:
            made = self.weights.product(x, EMBEDDINGS.removesuffix(".weight"), words)
        return self._capped(self._scaled(made, net.scales.logits), net.caps[1])

    def _place(self, position: Tensor, count: int) -> _Place:
        net, add = self.network, self.builder.emit
        at = add(ops.Add(), position, self._whole(np.arange(count))) if count > 1 else position
        heads = self._whole(np.arange(net.shared)[:, None] * self.context)
        rows = add(ops.Reshape((net.shared * count,)), add(ops.Add(), heads, at))
        kinds = (net.angles, net.local_angles)[: 2 if net.window else 1] if net.turned else ()
        return _Place(count, position, at, rows, [self._turns(angles, at) for angles in kinds])

    def _turns(self, angles: Array, at: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines, and sines that are negative for the first half, f32 [1, count, turned]."""
        every = np.arange(self.context)[:, None] * angles
        sines = np.concatenate([-np.sin(every), np.sin(every)], axis=1)
        made = []
        for table in (np.tile(np.cos(every), 2), sines):
            table = table * self.network.gain
            rows = self.builder.constant(table.astype(np.float32))
            row = self.builder.emit(ops.Gather(0), rows, at)
            shape = (1, *at.shape, self.network.turned)
            made.append(self.builder.emit(ops.Reshape(shape), row))
        return made[0], made[1]

    def _layer(self, x: Tensor, layer: int, place: _Place) -> Tensor:
        net, name, add = self.network, f"blk.{layer}", self.builder.emit
        read = x if net.family.bare else self._normalized(x, f"{name}.attn_norm")
        made = self._attention(read, layer, place)
        made = self._maybe_normalized(made, f"{name}.post_attention_norm")
        after = add(ops.Add(), x, self._scaled(made, net.scales.parts))
        norm = f"{name}.ffn_norm"
        if net.parallel:
            read = self._normalized(x, norm) if f"{norm}.weight" in self.weights else read
        else:
            read = after if net.family.bare else self._normalized(after, norm)
        made = self._maybe_normalized(self._fed_forward(read, name), f"{name}.post_ffw_norm")
        return add(ops.Add(), after, self._scaled(made, net.scales.parts))

    def _fed_forward(self, x: Tensor, name: str) -> Tensor:
        net, weights, add = self.network, self.weights, self.builder.emit
        up, gate = f"{name}.ffn_up", f"{name}.ffn_gate"
        for each in (up, f"{name}.ffn_down"):
            weights.check_has(f"{each}.weight")
        rows, down = weights.rows_in(f"{up}.weight"), weights.columns_in(f"{name}.ffn_down.weight")
        if f"{gate}.weight" in weights:
            parts = [weights.product(x, each, rows) for each in (gate, up)]
        elif rows == 2 * down:
            whole = weights.product(x, up, rows)
            parts = self.builder.emit_all(ops.Split(1, (down, down)), [whole])
        else:
            parts = [weights.product(x, up, rows)]
        made = add(_ACTS[net.family.act], parts[0])
        made = add(ops.Mul(), made, made) if net.family.act == "relu2" else made
        made = add(ops.Mul(), made, parts[1]) if len(parts) > 1 else made
        made = self._maybe_normalized(made, f"{name}.ffn_sub_norm")
        return weights.product(made, f"{name}.ffn_down", net.width)

    def _attention(self, x: Tensor, layer: int, place: _Place) -> Tensor:
        """Attention of each query head over all tokens so far; heads share keys and values."""
        net, add, name = self.network, self.builder.emit, f"blk.{layer}"
        local, turns = int(net.is_local(layer)), net.turns(layer)
        counts = {"q": net.heads, "k": net.shared, "v": net.shared}
        if f"{name}.attn_qkv.weight" in self.weights:
            sizes = tuple(count * net.size for count in counts.values())
            whole = self.weights.product(x, f"{name}.attn_qkv", sum(sizes))
            split = self.builder.emit_all(ops.Split(1, sizes), [whole])
            found = dict(zip(counts, split, strict=True))
        else:
            found = {
                part: self.weights.product(
                    x, f"{name}.attn_{part}", count * net.size,
                    count if part != "v" and net.family.adjacent else 0,
                )
                for part, count in counts.items()
            }  # fmt: skip

        def heads(part: str) -> Tensor:
            norm = f"{name}.attn_{part}_norm"
            whole = self.weights.rows_in(f"{norm}.weight") == counts[part] * net.size
            made = self._maybe_normalized(found[part], norm) if whole else found[part]
            made = self._heads_first(made, counts[part])
            made = made if whole else self._maybe_normalized(made, norm)
            return self._turned(made, place.turns[local]) if turns and part != "v" else made

        query = heads("q")
        keys, *key_scale = self._kept(f"{name}.key", heads("k"), place)
        values, *scales = self._kept(f"{name}.value", heads("v"), place)
        near = net.window if local and net.window < self.context else 0
        attention = ops.CachedAttention(net.scales.scores, net.caps[0], near)
        mixed = add(attention, query, keys, values, place.position, *key_scale, *scales)
        if place.count > 1:
            mixed = add(ops.Transpose((1, 0, 2)), mixed)
        mixed = add(ops.Reshape((place.count, net.heads * net.size)), mixed)
        mixed = self._maybe_normalized(mixed, f"{name}.attn_sub_norm")
        return self.weights.product(mixed, f"{name}.attn_output", net.width)

    def _kept(self, state: str, rows: Tensor, place: _Place) -> list[Tensor]:
        """The cache [shared, context, size] with `rows` [shared, count, size] in their place, and
        the scales [shared, context] of one in s8."""
        net, builder = self.network, self.builder
        rows = builder.emit(ops.Reshape((net.shared * place.count, net.size)), rows)
        kept = (net.shared, self.context)
        if not self.eight:
            return [self._scattered(state, rows, place, (*kept, net.size))]
        values, scales = builder.emit_all(ops.QuantizeRows(), [rows])
        cache = self._scattered(state, values, place, (*kept, net.size))
        return [cache, self._scattered(f"{state}.scale", scales, place, kept)]

    def _scattered(self, state: str, rows: Tensor, place: _Place, shape: tuple[int, ...]) -> Tensor:
        add, kept = self.builder.emit, (self.network.shared * self.context, rows.shape[1])
        self.builder.states[state] = State(state, np.zeros(kept, rows.dtype.numpy))
        cache = add(ops.ReadState(state, kept, rows.dtype))
        cache = add(ops.Scatter(), cache, place.rows, rows)
        self.builder.emit_all(ops.WriteState(state), [cache])
        return add(ops.Reshape(shape), cache)

    def _heads_first(self, x: Tensor, heads: int) -> Tensor:
        """[tokens, heads · size] → [heads, tokens, size]"""
        add, count, size = self.builder.emit, x.shape[0], self.network.size
        if count == 1:
            return add(ops.Reshape((heads, 1, size)), x)
        return add(ops.Transpose((1, 0, 2)), add(ops.Reshape((count, heads, size)), x))

    def _turned(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """Rotary embedding of each head [heads, count, size], or of its first values."""
        net, add, half = self.network, self.builder.emit, self.network.turned // 2
        sizes = (half, half, net.size - net.turned)[: 2 if net.turned == net.size else 3]
        a, b, *rest = self.builder.emit_all(ops.Split(2, sizes), [x])
        own = add(ops.Concat(2), a, b) if rest else x
        other = add(ops.Concat(2), b, a)
        cosines, sines = turns
        made = add(ops.Add(), add(ops.Mul(), own, cosines), add(ops.Mul(), other, sines))
        return add(ops.Concat(2), made, *rest) if rest else made

    def _scaled(self, x: Tensor, factor: float) -> Tensor:
        return x if factor == 1 else self.builder.emit(ops.Mul(), x, self._scalar(factor))

    def _maybe_normalized(self, x: Tensor, name: str) -> Tensor:
        return self._normalized(x, name) if f"{name}.weight" in self.weights else x

    def _normalized(self, x: Tensor, name: str) -> Tensor:
        """x / sqrt(mean of its squares + epsilon), scaled; of centered families LayerNorm."""
        add, axis, weights = self.builder.emit, len(x.shape) - 1, self.weights
        scale = weights.vector(f"{name}.weight", x.shape[-1])
        if self.network.family.centered:
            bias = f"{name}.bias"
            shift = weights.vector(bias, x.shape[-1]) if bias in weights else None
            return add(ops.LayerNorm(1, self.network.epsilon), x, scale, shift)
        mean = add(ops.Mean((axis,), True), add(ops.Mul(), x, x))
        root = add(ops.Sqrt(), add(ops.Add(), mean, self._scalar(self.network.epsilon)))
        return add(ops.Mul(), add(ops.Div(), x, root), scale)

    def _capped(self, x: Tensor, cap: float) -> Tensor:
        if not cap:
            return x
        add = self.builder.emit
        part = add(ops.Tanh(), add(ops.Mul(), x, self._scalar(1 / cap)))
        return add(ops.Mul(), part, self._scalar(cap))

    def _scalar(self, value: float) -> Tensor:
        return self.builder.floats(value)

    def _whole(self, values: Array) -> Tensor:
        return self.builder.constant(values.astype(np.int32))
