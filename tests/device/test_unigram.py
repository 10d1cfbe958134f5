"""Pieces by probability are those of the library tokenizers, which trained the tokenizers in
unigram_tokens.json and wrote the tokens of texts:

python -m tests.device.test_unigram           # needs: pip install tokenizers
python -m tests.device.test_unigram 100000    # compares so many random texts with the library
"""

from __future__ import annotations

import base64
import copy
import json
import random
import struct
import sys
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.bpe import FIRST, UNIGRAM, Bpe, BpeSpec, bpe_of
from edgekit.device.runtime.agent.pieces import PieceTokenizer, pieces_of
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.device.runtime.record import asdict
from edgekit.host.compiler.frontends.gguf.hub_unigram import unigram_spec
from edgekit.host.compiler.tasks.language import bpe_spec
from edgekit.host.compiler.tasks.tokenizer_file import read_tokenizer
from edgekit.host.errors import InputError
from tests.device.test_bpe import _TEXT, _WORDS, _random_text

_RECORD = Path(__file__).with_name("unigram_tokens.json")
_ucd = unicodedata.ucd_3_2_0  # newer characters have other properties in other libraries
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_MORE = [
    *("ﬁne", "Ａ１", "①", "½\u0301", "\r\n", "a\u0301\u0302", "ｶﾞ", "\u00ad", "\ufeff", "\t the"),
    *("  boards  ", "▁▁the", "▁", "a\u200db", "ǆ", "ℌ", "…", "①\u0301", "\x07", "\u0600a"),
    *("<s>", "<mask>", "<0x41>", "\u00a0", "\u3000x", "e\u0301e\u0301", "Å", "İ", "𝒳\u0301"),
]

_KNOWN = {*"".join((*_WORDS, *_MORE))}


def _texts(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    made = ["", " ", *_WORDS, *_MORE]
    for _ in range(count):
        parts = [_random_text(rng)]
        if rng.random() < 0.5:
            parts += rng.choices(_MORE, k=rng.randrange(1, 5))
        rng.shuffle(parts)
        text = rng.choice(("", " ")).join(parts)
        made.append("".join(c for c in text if c in _KNOWN or _ucd.category(c) != "Cn"))
    return made


# The characters that the map in the test replaces, as those of SentencePiece's nmt_nfkc do.
_MAP = {
    "ﬁ": "fi", "Ａ": "A", "１": "1", "①": "1", "½": "1⁄2", "\r": " ", "\t": " ", "\x07": "",
    "\u00ad": "", "\ufeff": "", "\u3000": " ", "\u00a0": " ", "a\u0301": "á", "e\u0301": "é",
    "ｶﾞ": "ガ", "ｶ": "カ", "ℌ": "H", "…": "...", "ǆ": "dž",
}  # fmt: skip


def _precompiled(pairs: dict[str, str]) -> bytes:
    """A map of characters as SentencePiece stores it: a double array (darts-clone)."""
    texts, starts = b"", {}
    for key, value in pairs.items():
        starts[key.encode()] = len(texts)
        texts += value.encode() + b"\0"
    units = {0: 0}
    free = 256

    def fill(at: int, prefix: bytes) -> None:
        nonlocal free
        ends = prefix in starts
        after = sorted(
            {k[len(prefix)] for k in starts if k.startswith(prefix) and len(k) > len(prefix)}
        )
        base = free  # a block of its own: the labels cannot meet others
        free += 256
        units[at] |= (base ^ at) << 10 | (1 << 8 if ends else 0)
        if ends:
            units[base] = 1 << 31 | starts[prefix]
        for label in after:
            units[base ^ label] = label
        for label in after:
            fill(base ^ label, prefix + bytes([label]))

    fill(0, b"")
    array = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(free))
    return struct.pack("<I", len(array)) + array + texts


def _normalizers() -> dict[str, Any]:
    runs = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    characters = base64.b64encode(_precompiled(_MAP)).decode()
    return {
        "xlm-r": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": characters}, runs]},
        "albert": {"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": "…"}, "content": '"'}, {"type": "NFKD"},
            {"type": "StripAccents"}, {"type": "Lowercase"}, runs]},
        "bytes": {"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Strip", "strip_left": False, "strip_right": True},
            {"type": "Prepend", "prepend": "▁"}]},
        "first": None,
        "old": {"type": "NFC"},
    }  # fmt: skip


_MARKS = {"type": "Metaspace", "replacement": "▁"}
_SPLITS: dict[str, Any] = {
    "xlm-r": {**_MARKS, "prepend_scheme": "always", "split": True},
    "albert": {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {**_MARKS, "prepend_scheme": "always", "split": True}]},
    "bytes": {**_MARKS, "prepend_scheme": "never", "split": False},
    "first": {**_MARKS, "prepend_scheme": "first", "split": True},
    "old": {**_MARKS, "add_prefix_space": True},
}  # fmt: skip


@cache
def _recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_RECORD.read_text())
    return found


def _document(name: str) -> dict[str, Any]:
    """A tokenizer.json."""
    made = {
        "version": "1.0", "truncation": None, "padding": None, "decoder": None,
        "added_tokens": [
            {"id": i, "content": piece, "special": True, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False} for i, piece in enumerate(_SPECIAL)],
        "normalizer": _normalizers()[name], "pre_tokenizer": _SPLITS[name],
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {p: {"id": p, "ids": [i], "tokens": [p]}
                               for i, p in enumerate(_SPECIAL) if p in ("<s>", "</s>")}},
        "model": _recorded()["models"]["bytes" if name == "bytes" else "plain"],
    }  # fmt: skip
    return copy.deepcopy(made)


def _written(document: dict[str, Any], folder: Path) -> bytes:
    (folder / "tokenizer.json").write_text(json.dumps(document))
    made = read_tokenizer(folder / "model.onnx")
    assert made is not None
    return made


@pytest.mark.parametrize("name", _SPLITS)
def test_tokens_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    tokenizer = PieceTokenizer(pieces_of(_written(_document(name), tmp_path), "x"))
    texts, recorded = _texts(60), _recorded()["tokens"][name]
    assert len(texts) == len(recorded)
    for text, wanted in zip(texts, recorded, strict=True):
        assert tokenizer.tokens(text, 10**6) == wanted, repr(text)


def test_texts_are_cut_and_padded(tmp_path: Path) -> None:
    spec = pieces_of(_written(_document("xlm-r"), tmp_path), "x")
    tokenizer = PieceTokenizer(spec)
    whole = tokenizer.tokens("the boards", 100)
    assert whole[0] == 0 and whole[-1] == 2 and spec.padding == 1
    assert tokenizer.tokens("the boards", 3) == [0, whole[1], 2]
    found, mask = tokenizer.padded("the boards", len(whole) + 2)
    assert found == [*whole, 1, 1] and mask == [1] * len(whole) + [0, 0]


def test_bytes_stand_for_characters_without_pieces(tmp_path: Path) -> None:
    spec = pieces_of(_written(_document("bytes"), tmp_path), "x").tokenizer
    bpe = Bpe(spec)
    for text in ("the boards", "x𝒳y", "東京 the"):
        joined = b"".join(map(bpe.bytes_of, bpe.tokens(text))).decode()
        assert joined.strip() == text.replace("𝒳", "X")
    parts = [("<s>", False), ("the", True)]
    assert not {0, 1, 2} & {*bpe.tokens_of(parts)}  # what a user writes is no special token


def _gguf(pieces: dict[str, float], **more: Any) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": [*pieces],
        "tokenizer.ggml.scores": [*pieces.values()],
        "tokenizer.ggml.token_type": [2, 3, *[1] * (len(pieces) - 2)],
        "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.add_bos_token": False,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }  # fmt: skip


_FEW = {
    "<unk>": 0.0, "</s>": 0.0, "▁": -3.0, "a": -3.0, "b": -3.0, "▁ab": -4.5, "▁a": -2.0, "ba": -3.5,
}  # fmt: skip


def test_a_gguf_file_has_sentencepieces_own_form() -> None:
    characters = [
        byte - 256 if byte > 127 else byte for byte in _precompiled({"ａ": "a", "ａｂ": "ba"})
    ]
    bpe = Bpe(bpe_spec(_gguf(_FEW, precompiled_charsmap=characters)))
    names = [*_FEW]

    def said(text: str) -> list[str]:
        return [names[n] for n in bpe.tokens(text)]

    assert said("\x85") == ["▁", "<unk>"]  # only U+0020 is a space to it
    assert said("ab") == ["▁ab"]  # -4.5 against -5
    assert said("  a   ba ") == ["▁a", "▁", "ba"]
    assert said("ａ ａｂ") == ["▁a", "▁", "ba"]  # the longest known characters
    assert said("axyb") == ["▁a", "<unk>", "b"]
    kept = Bpe(bpe_spec(_gguf(_FEW, remove_extra_whitespaces=False, add_space_prefix=False)))
    assert [names[n] for n in kept.tokens("a  a")] == ["a", "▁", "▁a"]
    with pytest.raises(InputError, match="precompiled_charsmap: expected a list of bytes"):
        bpe_spec(_gguf(_FEW, precompiled_charsmap=["a"]))


def test_a_damaged_map_of_characters_replaces_nothing() -> None:
    data = bytearray(_precompiled({"ab": "b"}))
    struct.pack_into("<I", data, 4 + 4 * (256 ^ ord("a")), ord("a") | 0x1FFFFF << 10)  # far beyond
    bpe = Bpe(bpe_spec(_gguf(_FEW, precompiled_charsmap=[*data])))
    assert bpe.tokens("ab") == [[*_FEW].index("▁ab")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"normalizer": {"type": "Nmt"}}, "normalizer: expected one of NFC, NFD, NFKC"),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": "[a-z]+"}, "content": ""}},
         "normalizer: expected Replace of a text"),
        ({"pre_tokenizer": {"type": "Digits"}}, "pre_tokenizer: expected Metaspace, or"),
        ({"pre_tokenizer": {**_MARKS, "replacement": "_"}}, "expected Metaspace with ▁, found _"),
        ({"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": None}}, "unk_id: expected"),
        ({"model": {"type": "Unigram", "vocab": [["a", "b"]], "unk_id": 0}}, "found a damaged one"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "a map of"),
        ({"model": {"type": "Unigram", "vocab": [["<0x00>", 0.0]], "unk_id": 0}}, "byte_fallback"),
    ],
)  # fmt: skip
def test_steps_that_boards_have_not_are_named(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    document = {**_document("xlm-r"), **change}
    with pytest.raises(InputError) as caught:
        _written(document, tmp_path)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"split": "gpt2"}, "x.split: expected none or marks or spaces or text, found gpt2"),
        ({"scores": []}, "a score for each piece"),
        ({"characters": "AAAA"}, "x.characters: expected a map of characters, found 3 bytes"),
        ({"characters": "?"}, "x.characters: expected a text in base64"),
        ({"steps": [["runs", "", " ", "2"]]}, "x.steps: expected a text and a number"),
        ({"steps": [["runs", " ", " ", "99"]]}, "x.steps: expected a text and a number"),
        ({"steps": [["upper"]]}, "x.steps: expected one of nfc"),
        ({"steps": [["replace", "a"]]}, "x.steps: expected one of nfc"),
    ],
)
def test_a_damaged_tokenizer_is_one_line(change: dict[str, Any], said: str) -> None:
    spec = BpeSpec(UNIGRAM, "marks", ("a",), (), (0.5,), (), (), (), FIRST, steps=(("nfc",),))
    whole = json.loads(json.dumps(asdict(spec)))
    assert bpe_of(whole, "x") == spec
    with pytest.raises(DeviceInputError) as caught:
        bpe_of({**whole, **change}, "x")
    assert said in str(caught.value)


def _trained(fallback: bool) -> dict[str, Any]:
    """A model trained by the library."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    more = [f"<0x{byte:02X}>" for byte in range(256)] if fallback else []
    trainer = trainers.UnigramTrainer(
        vocab_size=220 + len(more), special_tokens=[*_SPECIAL, *more], unk_token="<unk>"
    )
    made.train_from_iterator([_TEXT, *_TEXT.split(". ")], trainer)
    model: dict[str, Any] = json.loads(made.to_str())["model"]
    return {**model, "byte_fallback": fallback}


def _library(name: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps(_document(name)))


def _compare(count: int) -> None:
    for name in _SPLITS:
        library, document = _library(name), _document(name)
        bpe = Bpe(unigram_spec(document))
        for text in _texts(count, seed=count):
            wanted = library.encode(text, add_special_tokens=False).ids
            assert bpe.tokens(text) == wanted, (name, text)
        print(f"{name}: {count} texts are the library's")


if __name__ == "__main__":
    if sys.argv[1:]:
        _compare(int(sys.argv[1]))
    else:
        models_of = {"plain": _trained(False), "bytes": _trained(True)}
        _RECORD.write_text(json.dumps({"models": models_of, "tokens": {}}, ensure_ascii=False))
        tokens = {name: [_library(name).encode(t).ids for t in _texts(60)] for name in _SPLITS}
        whole = json.dumps({"models": models_of, "tokens": tokens}, ensure_ascii=False)
        _RECORD.write_text(whole.replace("]], ", "]],\n") + "\n")
