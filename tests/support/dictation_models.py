"""An encoder and a decoder of speech as Optimum exports Whisper, tiny and with random weights, and
what they write down by NumPy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edgekit.host.compiler.ir.types import Array
from tests.support.onnx_models import model, node, save, value

RATE, FRAMES, BANDS = 16000, 100, 80
MOST = 40  # tokens of a text, with those before it
_WIDTH, _WORDS = 12, 28
END, START, ENGLISH, GERMAN, TRANSCRIBE, _TRANSLATE, _PLAIN = range(20, 27)
_SUPPRESSED, _HELD = [3, 27, _PLAIN, START], [7, END]
_TIME, _TIMED = 27, 27 + 51  # the first token of a time, and all tokens with those
_NEVER = [3, START]
# What is kept of the text and the sound, and its names in caches.
_KEPT = {
    "k_x": "decoder.key", "v_x": "decoder.value", "key_h": "encoder.key",
    "value_h": "encoder.value",
}  # fmt: skip
_LETTERS = "abcdefghijklmnopqrst"
_SPECIAL = ("end", "start", "en", "de", "transcribe", "translate", "plain", "none")


def dictation_model(
    folder: Path, seed: int = 0, timed: bool = False, cached: bool = False, merged: bool = False
) -> Path:
    """Writes the encoder, the decoder and the files next to them; returns the encoder. `timed`: the
    last token, and those behind it, are times of 0 to 1 s. `cached`: also a decoder for one more
    token. `merged`: both decoders are in one file."""
    weights = _weights(seed, timed)
    nodes = [
        node("Transpose", ["input_features"], ["frames"], perm=[0, 2, 1]),
        node("MatMul", ["frames", "heard"], ["product"]),
        node("Tanh", ["product"], ["last_hidden_state"]),
    ]
    own = {"heard": weights["heard"]}
    features = value("input_features", ["batch_size", BANDS, FRAMES])
    encoder = save(
        model(nodes, [features], ["last_hidden_state"], own), folder, "encoder_model.onnx"
    )
    if merged:
        save(_merged(weights), folder, "decoder_model_merged.onnx")
    else:
        save(_decoder(weights), folder, "decoder_model.onnx")
    if cached:
        save(_next_token(weights), folder, "decoder_with_past_model.onnx")
    names = [f"<|{name}|>" for name in _SPECIAL]
    added = [{"id": 20 + i, "content": n, "special": True} for i, n in enumerate(names)]
    level = {"type": "ByteLevel", "add_prefix_space": False}
    vocabulary = {letter: i for i, letter in enumerate(_LETTERS)}
    for name, content in (
        ("tokenizer", {"model": {"type": "BPE", "vocab": vocabulary, "merges": []},
                       "added_tokens": added, "pre_tokenizer": level}),
        ("preprocessor_config", {
            "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": BANDS,
            "chunk_length": 1}),
        ("config", {
            "is_encoder_decoder": True, "max_target_positions": MOST,
            "decoder_start_token_id": START}),
        ("generation_config", {
            "eos_token_id": END, "vocab_size": _TIMED if timed else _WORDS,
            "suppress_tokens": _NEVER if timed else _SUPPRESSED, "begin_suppress_tokens": _HELD,
            "lang_to_id": {"<|en|>": ENGLISH, "<|de|>": GERMAN}, "no_timestamps_token_id": _PLAIN,
            "task_to_id": {"transcribe": TRANSCRIBE, "translate": _TRANSLATE}}),
    ):  # fmt: skip
        (folder / f"{name}.json").write_text(json.dumps(content))
    return encoder


def expected_text(sound: Array, seed: int = 0) -> str:
    """What the model writes down of at most a second of sound."""
    weights = _weights(seed)
    hidden = np.tanh(_features(sound).T @ weights["heard"])
    tokens = [START]
    tokens.append(int(np.argmax(_logits(weights, tokens, hidden)[[ENGLISH, GERMAN]])) + ENGLISH)
    tokens += [TRANSCRIBE, _PLAIN]
    begun = len(tokens)
    while len(tokens) < MOST:
        scores = _logits(weights, tokens, hidden)
        scores[_SUPPRESSED + (_HELD if len(tokens) == begun else [])] = -np.inf
        if (best := int(np.argmax(scores))) == END:
            break
        tokens.append(best)
    return "".join(_LETTERS[token] for token in tokens[begun:] if token < len(_LETTERS))


def expected_subtitles(sound: Array, seed: int) -> list[tuple[str, float, float]]:
    """Text, start and end of what the timed model writes down, by the rules in Whisper's paper and
    program: probabilities of tokens that may not follow are 0."""
    weights = _weights(seed, timed=True)
    hidden = np.tanh(_features(sound).T @ weights["heard"])
    tokens = [START]
    tokens.append(int(np.argmax(_logits(weights, tokens, hidden)[[ENGLISH, GERMAN]])) + ENGLISH)
    tokens.append(TRANSCRIBE)
    begun = len(tokens)
    while len(tokens) < MOST:
        scores = _logits(weights, tokens, hidden)
        scores[[*_NEVER, _PLAIN]] = -np.inf
        shares, made = _softmax(scores), tokens[begun:]
        is_time = [token >= _TIME for token in made]
        if not made:
            shares[:_TIME] = 0
        elif is_time[-1] and (len(made) < 2 or is_time[-2]):
            shares[_TIME:] = 0
        elif is_time[-1]:
            shares[[n for n in range(_TIME) if n != END]] = 0
        if any(is_time):
            latest = max(token for token in made if token >= _TIME)
            shares[_TIME : latest + (not is_time[-1] or is_time[-2:] != [False, True])] = 0
        if shares[_TIME:].sum() > shares[:_TIME].max():
            shares[:_TIME] = 0
        if (best := int(np.argmax(shares))) == END:
            break
        tokens.append(best)
    found, text, start = [], "", 0.0
    for token in [*tokens[begun:], _TIME + round(len(sound) / RATE / 0.02)]:
        if token < _TIME:
            text += _LETTERS[token] if token < len(_LETTERS) else ""
            continue
        at = min((token - _TIME) * 0.02, len(sound) / RATE)
        found += [(text, start, at)] if text else []
        text, start = "", at
    return found


def _weights(seed: int, timed: bool = False) -> dict[str, Array]:
    random = np.random.default_rng(seed)

    def some(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32)

    wide = (_WIDTH, _WIDTH)
    names = ("q", "k", "v", "query", "key", "value")
    square = {name: some(*wide) / 2 for name in names}
    words = _TIMED if timed else _WORDS
    return {
        **square, "heard": some(BANDS, _WIDTH) / 4, "words": some(words, _WIDTH),
        "places": some(MOST, _WIDTH), "logits": some(_WIDTH, words),
        "mask": np.triu(np.full((MOST, MOST), -1e9, np.float32), 1),
    }  # fmt: skip


def _decoder(weights: dict[str, Array]) -> Any:
    """Attention to the text so far, then to the sound, whose keys and values depend on that
    alone."""
    ends = {"zero": np.array([0]), "one": np.array([1])}
    own = {name: data for name, data in weights.items() if name != "heard"}
    nodes = [
        node("Shape", ["input_ids"], ["extents"]),
        node("Gather", ["extents", "one"], ["length"]),
        node("Slice", ["places", "zero", "length", "zero"], ["place"]),
        node("Slice", ["mask", "zero", "length", "zero"], ["lines"]),
        node("Slice", ["lines", "zero", "length", "one"], ["later"]),
        node("Gather", ["words", "input_ids"], ["word"]),
        node("Add", ["word", "place"], ["x"]),
        *(node("MatMul", ["x", name], [f"{name}_x"]) for name in "qkv"),
        node("Transpose", ["k_x"], ["k_turned"], perm=[0, 2, 1]),
        node("MatMul", ["q_x", "k_turned"], ["near"]),
        node("Add", ["near", "later"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v_x"], ["text"]),
        node("Add", ["x", "text"], ["y"]),
        node("MatMul", ["y", "query"], ["asked"]),
        *(node("MatMul", ["encoder_hidden_states", n], [f"{n}_h"]) for n in ("key", "value")),
        node("Transpose", ["key_h"], ["key_turned"], perm=[0, 2, 1]),
        node("MatMul", ["asked", "key_turned"], ["like"]),
        node("Softmax", ["like"], ["parts"], axis=-1),
        node("MatMul", ["parts", "value_h"], ["sound"]),
        node("Add", ["y", "sound"], ["z"]),
        node("MatMul", ["z", "logits"], ["scores"]),
        *(node("Unsqueeze", [n, "one"], [f"present.0.{_KEPT[n]}"]) for n in _KEPT),
    ]
    inputs = [
        value("input_ids", ["batch_size", "decoder_sequence_length"], "s64"),
        value("encoder_hidden_states", ["batch_size", "encoder_sequence_length", _WIDTH]),
    ]
    outputs = ["scores", *(f"present.0.{name}" for name in _KEPT.values())]
    return model(nodes, inputs, outputs, {**own, **ends})


def _next_token(weights: dict[str, Array]) -> Any:
    """The same for one more token behind those whose keys and values are given."""
    past = {name: f"past_key_values.0.{kept}" for name, kept in _KEPT.items()}
    own = {n: data for n, data in weights.items() if n not in ("heard", "mask", "key", "value")}
    own |= {"one": np.array([1]), "two": np.array([2])}
    nodes = [
        node("Shape", [past["k_x"]], ["extents"]),
        node("Gather", ["extents", "two"], ["length"]),
        node("Gather", ["places", "length"], ["place"]),
        node("Gather", ["words", "input_ids"], ["word"]),
        node("Add", ["word", "place"], ["x"]),
        *(node("MatMul", ["x", name], [f"{name}_x"]) for name in "qkv"),
        *(node("Unsqueeze", [f"{name}_x", "one"], [f"{name}_4"]) for name in "qkv"),
        *(
            node("Concat", [past[f"{n}_x"], f"{n}_4"], [f"present.0.{_KEPT[f'{n}_x']}"], axis=2)
            for n in "kv"
        ),
        node("Transpose", ["present.0.decoder.key"], ["k_turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q_4", "k_turned"], ["near"]),
        node("Softmax", ["near"], ["shares"], axis=-1),
        node("MatMul", ["shares", "present.0.decoder.value"], ["text_4"]),
        node("Squeeze", ["text_4", "one"], ["text"]),
        node("Add", ["x", "text"], ["y"]),
        node("MatMul", ["y", "query"], ["asked"]),
        node("Unsqueeze", ["asked", "one"], ["asked_4"]),
        node("Transpose", [past["key_h"]], ["key_turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["asked_4", "key_turned"], ["like"]),
        node("Softmax", ["like"], ["parts"], axis=-1),
        node("MatMul", ["parts", past["value_h"]], ["sound_4"]),
        node("Squeeze", ["sound_4", "one"], ["sound"]),
        node("Add", ["y", "sound"], ["z"]),
        node("MatMul", ["z", "logits"], ["scores"]),
    ]
    inputs = [
        value("input_ids", ["batch_size", 1], "s64"),
        *(value(n, ["batch_size", 1, f"{n}_length", _WIDTH]) for n in past.values()),
    ]
    outputs = ["scores", "present.0.decoder.key", "present.0.decoder.value"]
    return model(nodes, inputs, outputs, own)


def _merged(weights: dict[str, Array]) -> Any:
    """Both as Optimum merges them: common weights are outside, and what only the decoder of whole
    texts computes is a constant of the other."""
    whole, step = _decoder(weights).graph, _next_token(weights).graph
    common = {t.name for t in whole.initializer} & {t.name for t in step.initializer}
    branches = {}
    for name, graph in (("else_branch", whole), ("then_branch", step)):
        own = [t for t in graph.initializer if t.name not in common]
        left = [v for v in whole.output if v.name not in {v.name for v in graph.output}]
        none = onnx.helper.make_tensor("none", onnx.TensorProto.FLOAT, [0, 1, 1, _WIDTH], [])
        more = [onnx.helper.make_node("Constant", [], [v.name], value=none) for v in left]
        branches[name] = onnx.helper.make_graph(
            [*graph.node, *more], name, [], [*graph.output, *left], own
        )
    names = [v.name for v in whole.output]
    chosen = onnx.helper.make_node("If", ["use_cache_branch"], names, **branches)
    inputs = {v.name: v for v in (*step.input, *whole.input)}
    flag = value("use_cache_branch", [1], np.dtype(bool))
    made = model([chosen], [], [], {})
    made.graph.input.extend([*inputs.values(), flag])
    made.graph.output.extend(whole.output)
    made.graph.initializer.extend(t for t in whole.initializer if t.name in common)
    return made


def _logits(w: dict[str, Array], tokens: list[int], hidden: Array) -> Array:
    x = w["words"][tokens] + w["places"][: len(tokens)]
    later = w["mask"][: len(tokens), : len(tokens)]
    y = x + _softmax(x @ w["q"] @ (x @ w["k"]).T + later) @ (x @ w["v"])
    z = y + _softmax(y @ w["query"] @ (hidden @ w["key"]).T) @ (hidden @ w["value"])
    found: Array = (z @ w["logits"])[-1]
    return found


def _softmax(x: Array) -> Array:
    powers: Array = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _features(sound: Array) -> Array:
    """Whisper's features [BANDS, FRAMES] of a second."""
    padded = np.pad(np.pad(sound, (0, RATE - len(sound))), 200, mode="reflect")
    window = np.hanning(401)[:-1]
    frames = np.stack([padded[at : at + 400] * window for at in range(0, RATE, 160)])
    energy = np.abs(np.fft.rfft(frames)) ** 2
    mel = np.linspace(0, 15 + 27 * np.log(8) / np.log(6.4), BANDS + 2)
    edges = np.where(mel < 15, mel * 200 / 3, 1000 * 6.4 ** ((mel - 15) / 27))
    lines = np.arange(201) * 40.0
    bands = []
    for low, center, high in zip(edges, edges[1:], edges[2:], strict=False):
        shape = np.interp(lines, [low, center, high], [0, 1, 0]) * 2 / (high - low)
        bands.append(np.log10(np.maximum(energy @ shape, 1e-10)))
    found = np.stack(bands)
    result: Array = (np.maximum(found, found.max() - 8) + 4) / 4
    return result
