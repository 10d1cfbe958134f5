"""Small models of texts with random weights, and a WordPiece vocabulary for them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.support.onnx_models import model, node, save, value

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_PARTS = ("ing", "ed", "er", "s", "ly", "est", "un", "re", "the", "cat", "mat", "sit", "on", "a")
_MARKS = (*".,;:!?'\"()-&%$#@/", "é", "ñ", "ß", "σ", "東", "京", "…", "€")
VOCABULARY = (
    *SPECIAL,
    *dict.fromkeys((*_LETTERS, *_PARTS, *_MARKS)),
    *(f"##{piece}" for piece in dict.fromkeys((*_LETTERS, *_PARTS))),
)
WIDTH = 16


def tokenizer_document(lower: bool = True) -> dict[str, object]:
    """A tokenizer.json as the library writes it for BERT."""
    added = [
        {"id": i, "content": piece, "special": True, "single_word": False, "lstrip": False}
        | {"rstrip": False, "normalized": False}
        for i, piece in enumerate(SPECIAL)
    ]
    around = {
        name: {"id": name, "ids": [SPECIAL.index(name)], "tokens": [name]} for name in SPECIAL
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {name: around[name] for name in ("[CLS]", "[SEP]")},
        },
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {piece: i for i, piece in enumerate(VOCABULARY)},
        },
    }


def text_model(folder: Path, classes: int = 0, length: int | str = "length") -> Path:
    """A model of token vectors, or of the scores of classes, with its tokenizer next to it."""
    rng = np.random.default_rng(classes)
    weights = {
        "table": rng.standard_normal((len(VOCABULARY), WIDTH)).astype(np.float32),
        "kinds": rng.standard_normal((2, WIDTH)).astype(np.float32),
        "dense": rng.standard_normal((WIDTH, classes or WIDTH)).astype(np.float32),
    }
    nodes = [
        node("Gather", ["table", "input_ids"], ["words"]),
        node("Gather", ["kinds", "token_type_ids"], ["kind"]),
        node("Add", ["words", "kind"], ["sum"]),
    ]
    output = "logits" if classes else "last_hidden_state"
    if classes:
        nodes.append(node("ReduceMean", ["sum"], ["mean"], axes=[1], keepdims=0))
    nodes.append(node("MatMul", ["mean" if classes else "sum", "dense"], [output]))
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [value(name, ["batch", length], np.dtype(np.int64)) for name in names]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_document()))
    return save(model(nodes, inputs, [output], weights), folder)
