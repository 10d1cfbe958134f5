"""Tokens of texts are those of the library tokenizers, which wrote tokens.json:

python -m tests.device.test_tokenizer    # needs: pip install tokenizers
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.pieces import PieceTokenizer, pieces_of
from edgekit.device.runtime.agent.tokenizer import Tokenizer, TokenizerSpec, tokenizer_of
from edgekit.device.runtime.errors import InputError
from edgekit.host.compiler.tasks.tokenizer_file import read_tokenizer
from tests.support.text_models import SPECIAL, VOCABULARY, tokenizer_document

_RECORD = Path(__file__).with_name("tokens.json")
_WORDS = [
    *("cat", "Cats", "sitting", "unsat", "THE", "naïve", "Straße", "İstanbul", "ΟΔΟΣ", "東京"),
    *(
        "日本語です",
        "한국어",
        "مرحبا",
        "emoji😀🏽",
        "a\u200db",
        "\xad",
        "ﬁ",
        "½",
        "x²",
        "[SEP]",
        "[MASK]",
    ),
    *("[CLS]x", "don't", "e.g.", "U.S.A.", "3.14", "$5", "100%", "a_b", "<|x|>", "`~^", "\u2028"),
    *("\x0b", "\x1c", "\x85", "\u3000", "Å", "é", "ñ", "ǅ", "ß", "ſ", "\u212a", "\ufffd", "\x00"),
    *("\u0378", "\ue000"),
]
_LONG = "a" * 101


def _texts() -> list[str]:
    rng = random.Random(0)
    letters = [*map(chr, (*range(0x300), *range(0x2000, 0x2070), *range(0x4DF0, 0x4E10), 0x2B820))]
    made = ["", " ", _LONG, "a" * 100, *_WORDS]
    made += [" ".join(rng.choices(_WORDS, k=rng.randrange(9))) for _ in range(120)]
    return made + ["".join(rng.choices(letters, k=rng.randrange(16))) for _ in range(120)]


def _tokenizer(folder: Path, lower: bool) -> Tokenizer:
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_document(lower)))
    return Tokenizer(tokenizer_of(read_tokenizer(folder / "model.onnx"), "tokenizer"))


@pytest.mark.parametrize("lower", [True, False])
def test_tokens_are_those_of_the_library(tmp_path, lower):
    recorded = json.loads(_RECORD.read_text())[str(lower)]
    tokenizer = _tokenizer(tmp_path, lower)
    assert len(recorded) == len(_texts())
    for text, wanted in zip(_texts(), recorded, strict=True):
        assert tokenizer.tokens(text, 1000) == wanted, repr(text)


def test_a_vocabulary_is_the_same_tokenizer(tmp_path):
    own = _tokenizer(tmp_path, lower=True)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    other = Tokenizer(tokenizer_of(read_tokenizer(tmp_path / "model.onnx"), "tokenizer"))
    assert all(own.tokens(text, 1000) == other.tokens(text, 1000) for text in _texts())


def test_texts_are_cut_and_padded(tmp_path):
    tokenizer = _tokenizer(tmp_path, lower=True)
    numbers = {piece: i for i, piece in enumerate(VOCABULARY)}
    cat, on = numbers["cat"], numbers["on"]
    begin, end = SPECIAL.index("[CLS]"), SPECIAL.index("[SEP]")
    assert tokenizer.padded("cat on", 6) == ([begin, cat, on, end, 0, 0], [1, 1, 1, 1, 0, 0])
    assert tokenizer.padded("cat on on", 4) == ([begin, cat, on, end], [1] * 4)
    assert tokenizer.padded("cat", 2) == ([begin, end], [1, 1])
    assert tokenizer.padded("cat", 1) == ([begin], [1])


@pytest.mark.parametrize("nested", [True, False])
def test_pairs_of_bytes_are_joined_as_roberta_has_it(nested, tmp_path):
    pieces = [*map(chr, range(33, 127)), "Ġ", "th", "the", "Ġthe", "<s>", "</s>", "<pad>"]
    number = {piece: i for i, piece in enumerate(pieces)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    around = {"type": "RobertaProcessing", "cls": ["<s>", 98], "sep": ["</s>", 99]}
    added = [{"id": number[name], "content": name, "special": True} for name in pieces[-3:]]
    document = {
        "model": {"type": "BPE", "vocab": number, "merges": ["t h", "th e", "Ġ the"]},
        "normalizer": None, "pre_tokenizer": level, "added_tokens": added,
        "post_processor": (
            {"type": "Sequence", "processors": [level, around]} if nested else around
        ),
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    spec = pieces_of(read_tokenizer(tmp_path / "model.onnx"), "tokenizer")
    found, mask = PieceTokenizer(spec).padded("the the a", 7)
    assert [pieces[n] for n in found] == ["<s>", "the", "Ġthe", "Ġ", "a", "</s>", "<pad>"]
    assert mask == [1] * 6 + [0]


def test_models_of_many_languages_have_many_pieces(tmp_path):
    """BERT's multilingual one has 119,547."""
    document = tokenizer_document()
    vocabulary = document["model"]["vocab"]
    first = len(vocabulary)
    vocabulary.update({f"w{i}": first + i for i in range(1 << 17)})
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    spec = tokenizer_of(read_tokenizer(tmp_path / "model.onnx"), "tokenizer")
    assert len(spec.pieces) == first + (1 << 17)


def test_added_tokens_are_found_as_the_library_finds_them(tmp_path):
    document = tokenizer_document()
    vocabulary = document["model"]["vocab"]
    first = len(vocabulary)
    rules = ({}, {"normalized": True}, {"single_word": True}, {"rstrip": True})
    names = ("<a>", "Ünit", "solo", "|")
    document["added_tokens"] += [
        {"id": first + i, "content": name, **rule}
        for i, (name, rule) in enumerate(zip(names, rules, strict=True))
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    tokenizer = Tokenizer(tokenizer_of(read_tokenizer(tmp_path / "model.onnx"), "tokenizer"))

    def found(text):
        return [number - first for number in tokenizer.tokens(text, 100) if number >= first]

    assert found("cat<a>cat <A>") == [0]
    assert found("UNIT ünit unit Ünits") == [1] * 4  # as texts are after lowercasing
    assert found("solo, solos asolo _solo") == [2]
    assert found("a|  b") == [3]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"unknown": 3}, "tokenizer.unknown: expected"),
        ({"pieces": ["a", 1, "c"]}, "tokenizer.pieces"),
        ({"longest": 0}, "tokenizer.longest: expected"),
        ({"lower": 1}, "tokenizer.lower: expected true or false, found 1"),
        ({"more": 1}, "unknown 'more'"),
        ({"schema": "x"}, "tokenizer.schema: expected edgekit.tokenizer/1, found x"),
    ],
)
def test_a_damaged_tokenizer_is_one_line(change, said):
    good = {name: getattr(_SMALL, name) for name in TokenizerSpec.field_names}
    whole = json.dumps({"schema": "edgekit.tokenizer/1", **good})
    assert tokenizer_of(whole.encode(), "tokenizer").pieces == _SMALL.pieces
    with pytest.raises(InputError) as error:
        tokenizer_of(json.dumps({**json.loads(whole), **change}).encode(), "tokenizer")
    assert said in str(error.value) and "\n" not in str(error.value)
    for damaged in (whole[:-3].encode(), b"[" * 100_000):
        with pytest.raises(InputError, match="expected a JSON document"):
            tokenizer_of(damaged, "tokenizer")


_SMALL = TokenizerSpec(("[UNK]", "a", "b"), (0,), (1,), (2,), 0)

if __name__ == "__main__":
    from tokenizers import Tokenizer as Library

    made = {}
    for lower in (True, False):
        library = Library.from_str(json.dumps(tokenizer_document(lower)))
        made[str(lower)] = [library.encode(text).ids for text in _texts()]
    _RECORD.write_text(json.dumps(made).replace("]], ", "]],\n").replace("], [", "],\n[") + "\n")
