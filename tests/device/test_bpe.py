"""Tokens of texts are those of the library tokenizers, which wrote bpe_tokens.json:

python -m tests.device.test_bpe           # needs: pip install tokenizers
python -m tests.device.test_bpe 100000    # compares so many random texts with the library
"""

from __future__ import annotations

import json
import random
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.bpe import (
    ALWAYS,
    BYTES,
    FIRST,
    MARKS,
    NEVER,
    SPACE,
    Bpe,
    BpeSpec,
    bpe_of,
)
from edgekit.device.runtime.agent.words import Words
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.record import asdict, replace

_RECORD = Path(__file__).with_name("bpe_tokens.json")
_TEXT = """The boards' kernels are chosen by what they cost; it's 128 or 256 KiB, isn't it? Don't
you'll we're they've I'd HE'S  see   the table of costs: 1,234.5 times. La température de l'été à
Zürich; größer, weiß, naïve café. Привет, мир! 東京は日本の首都です。 x = [i ** 2 for i in
range(10)] the then there these other another mother board boards aboard costs costing kernel
kernels"""
_WORDS = [
    *("the", " cat", "'s", "'LL", "don't", "  ", "\n", "\r\n", "\t", "123", "4567", "½", "²", "٣"),
    *("é", "e\u0301", "日本", "😀🏽", "<|end|>", "<|user|>", "_", "$", "...", "x=1;", "\u00a0"),
    *("\u2028", "\u0085", "\x1c", "ſ", "'ſ", "\u212a", "Ⅷ", "ǅ", "ʰ", "\u200d", "한국어", "مرحبا"),
    *("हिन्दी", "\u3000", "'", "’s", "A", "B'D", "\ufeff", "𝒳", "\u20dd", "İ", "ß", " boards"),
    *("▁", "<0x41>", "\x00", " kernels'", "1st", "a  b", "\n\n ", " \n", "…", "€5"),
]
_SPECIAL = ("<|end|>", "<|user|>")
_AROUND = [
    *("the <|end|> cat", "a\n <|user|>\u3000 b", " <|end|> <|user|> ", "x <|end|>\x1c<|user|> y"),
    *("<|user|>\t\n<|end|>\u2009the", "\x85<|end|>\u200b <|end|>", "  <|user|>  <|user|>  "),
]


def _merges(words: list[str], count: int) -> list[tuple[str, str]]:
    """The most frequent pairs, one after the other, as the algorithm is published."""
    parts, made = [list(word) for word in words], []
    for _ in range(count):
        pairs: dict[tuple[str, str], int] = {}
        for word in parts:
            for pair in pairwise(word):
                pairs[pair] = pairs.get(pair, 0) + 1
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        made.append(best)
        for word in parts:
            for i in range(len(word) - 2, -1, -1):
                if tuple(word[i : i + 2]) == best:
                    word[i : i + 2] = ["".join(best)]
    return made


def _letters() -> list[str]:
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


@cache
def _of_bytes() -> BpeSpec:
    letters = _letters()
    words = ["".join(letters[b] for b in f" {word}".encode()) for word in _TEXT.split()]
    merges = _merges(words, 220)
    pieces = tuple(dict.fromkeys((*letters, *map("".join, merges), *_SPECIAL)))
    number = {piece: i for i, piece in enumerate(pieces)}
    pairs = tuple(number[part] for pair in merges for part in pair)
    special = tuple(number[piece] for piece in _SPECIAL)
    return BpeSpec(BYTES, "gpt2", pieces, pairs, (), special, special[:1], ())


@cache
def _of_marks() -> BpeSpec:
    """Without some letters, for which there are bytes; the scores of merges descend."""
    words = [f"{SPACE}{word}" for word in _TEXT.split() if word.isascii()]
    merges = _merges(words, 220)
    first = ["<unk>", *_SPECIAL, *(f"<0x{b:02X}>" for b in range(256))]
    letters = sorted({c for word in words for c in word})
    pieces = tuple(dict.fromkeys((*first, *map("".join, merges), *letters)))
    scores = tuple(-float(i) for i in range(len(pieces)))
    return BpeSpec(MARKS, "none", pieces, (), scores, (1, 2), (0, 1), (), ALWAYS, unknown=0)


def _specs() -> dict[str, BpeSpec]:
    made = {split: replace(_of_bytes(), split=split) for split in ("gpt2", "digits")}
    made["llama3"] = replace(_of_bytes(), split="llama3", whole=True)
    made["qwen2"] = replace(_of_bytes(), split="qwen2", composed=True)
    made |= {split: replace(_of_bytes(), split=split) for split in ("tekken", "gpt4o", "falcon")}
    made["gpt2, stripping"] = replace(made["gpt2"], left=made["gpt2"].special[:1])
    made["llama3, stripping"] = replace(made["llama3"], right=made["gpt2"].special)
    marks = _of_marks()
    made["marks, stripping"] = replace(marks, left=marks.special, right=marks.special[:1])
    return {**made, "marks": marks, "marks, no space": replace(marks, space=NEVER)}


def _random_text(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.4:
        return "".join(rng.choices(_WORDS, k=rng.randrange(1, 14)))
    if kind < 0.6:
        ranges = ((32, 127), (0x80, 0x600), (0x2000, 0x2100), (0x3040, 0x30A0))
        return "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(1, 20)))
    if kind < 0.7:
        any_ = (chr(rng.randrange(1, 0x20000)) for _ in range(rng.randrange(1, 12)))
        return "".join(c for c in any_ if not "\ud800" <= c <= "\udfff")
    return " ".join(rng.choices([*_TEXT.split(), "\n", "", "12"], k=rng.randrange(1, 12)))


def _texts(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return ["", " ", *_WORDS, *_AROUND, *(_random_text(rng) for _ in range(count))]


@pytest.mark.parametrize("name", _specs())
def test_tokens_are_those_of_the_library(name: str) -> None:
    recorded, bpe = json.loads(_RECORD.read_text())[name], Bpe(_specs()[name])
    texts = _texts(60)
    assert len(recorded) == len(texts)
    for text, wanted in zip(texts, recorded, strict=True):
        assert bpe.tokens(text) == wanted, repr(text)


@pytest.mark.parametrize("name", ["gpt2", "digits", "llama3", "marks, no space"])
def test_tokens_are_the_text_again(name: str) -> None:
    bpe = Bpe(_specs()[name])
    for text in _texts(60, seed=1):
        if SPACE not in text or name != "marks, no space":
            joined = b"".join(map(bpe.bytes_of, bpe.tokens(text))).decode()
            assert joined == text.replace("<|end|>", ""), repr(text)


def test_special_tokens_of_a_user_are_plain_text() -> None:
    bpe = Bpe(_of_bytes())
    assert len(bpe.tokens("<|end|>")) == 1 < len(bpe.tokens_of([("<|end|>", False)]))


@pytest.mark.parametrize("name", _specs())
def test_parts_of_a_text_are_joined_before_it_is_split(name: str) -> None:
    bpe, rng = Bpe(_specs()[name]), random.Random(3)
    for text in filter(None, _texts(60, seed=2)):
        at = rng.randrange(len(text))
        inside = any(text.find(s, max(at - len(s) + 1, 0), at + len(s) - 1) >= 0 for s in _SPECIAL)
        if not inside:
            parts = [(text[:at], True), (text[at:], True)]
            assert bpe.tokens_of(parts) == bpe.tokens(text), repr(text)


def test_tokens_that_are_not_hidden_are_found_in_a_users_text() -> None:
    """As all programs find "\\n\\n" in texts for Gemma; those of the template are not."""
    bpe, user = Bpe(_of_bytes()), _of_bytes().special[1]
    assert user in bpe.tokens_of([("a<|user|>", False)])
    assert bpe.tokens_of([("<|user|>", True), ("<|user|>", False)]).count(user) == 1


def test_pieces_that_are_hidden_are_never_made_of_others() -> None:
    pieces = ("<unk>", "</s>", "</", "s>", *"<>/s")
    scores = (0.0, 0.0, -1.0, -1.0, *[-2.0] * 4)
    spec = BpeSpec(MARKS, "none", pieces, (), scores, (1,), (0, 1), ())
    assert Bpe(spec).tokens_of([("</s>", False)]) == [2, 3]


def test_a_long_s_is_an_s_only_where_case_does_not_matter() -> None:
    """GPT-2's contractions are those of small letters."""
    assert [*Words("gpt2").of_text("it'\u017f")] == ["it", "'", "\u017f"]
    assert [*Words("llama3").of_text("it'\u017f")] == ["it", "'\u017f"]


def test_letters_of_a_special_token_are_no_bytes() -> None:
    bpe = Bpe(BpeSpec(BYTES, "gpt2", ("a", "<|end\u2581of|>"), (), (), (1,), (), ()))
    assert bpe.bytes_of(1).decode() == "<|end\u2581of|>"


def test_unknown_characters_are_one_token_or_several() -> None:
    spec = BpeSpec(MARKS, "none", ("<unk>", "a"), (0, 0), (), (), (), (), unknown=0)
    assert Bpe(spec).tokens("axya") == [1, 0, 0, 1]
    assert Bpe(replace(spec, fused=True)).tokens("axya") == [1, 0, 1]


def test_a_space_is_put_before_the_first_part_or_all() -> None:
    user = _of_marks().special[1]
    texts = {}
    for space in (NEVER, FIRST, ALWAYS):
        bpe = Bpe(replace(_of_marks(), space=space))
        texts[space] = b"".join(map(bpe.bytes_of, bpe.tokens("the<|user|>the"))).decode()
        assert bpe.tokens("<|user|>") == [user]
    assert texts == {
        NEVER: "the<|user|>the", FIRST: " the<|user|>the", ALWAYS: " the<|user|> the"
    }  # fmt: skip


def test_long_words_take_no_square_time() -> None:
    """A heap of pairs: 50,000 characters in one word take as many steps as in many."""
    bpe = Bpe(replace(_of_marks(), space=NEVER))
    word = "theboardscosts" * 4000
    assert b"".join(map(bpe.bytes_of, bpe.tokens(word))).decode() == word


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "words"}, "x.kind: expected bytes or marks or unigram, found words"),
        ({"split": "o200k"}, "x.split: expected none or gpt2"),
        ({"space": "all"}, "x.space: expected never or first or always"),
        ({"pieces": ["a", 1]}, "x.pieces: expected a list"),
        ({"pieces": []}, "x.merges: expected a whole number from 0 to -1"),
        ({"merges": [0]}, "expected pairs of merges"),
        ({"merges": [0, 1 << 40]}, "x.merges: expected a whole number"),
        ({"scores": [0.5]}, "a score for each piece"),
        ({"before": [-1]}, "x.before: expected a whole number"),
        ({"special": "ab"}, "x.special: expected a list"),
        ({"unknown": 1 << 40}, "x.unknown: expected a whole number"),
        ({"composed": 1}, "x.composed: expected true or false"),
        ({"fused": 1}, "x.fused: expected true or false"),
        ({"single": [-1]}, "x.single: expected a whole number"),
        ({"more": 1}, "unknown 'more'"),
    ],
)
def test_a_damaged_tokenizer_is_one_line(change: dict[str, Any], said: str) -> None:
    whole = json.loads(json.dumps(asdict(_of_bytes())))
    assert bpe_of(whole, "x") == _of_bytes()
    with pytest.raises(InputError) as caught:
        bpe_of({**whole, **change}, "x")
    assert said in str(caught.value) and "\n" not in str(caught.value)


def _library(spec: BpeSpec) -> Any:
    """The same tokenizer of the library."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers

    from tests.support.library_tokenizers import splitter

    number = {piece: i for i, piece in enumerate(spec.pieces)}
    if spec.kind == MARKS:
        splits = [
            (-spec.scores[i], piece[:at], piece[at:])
            for i, piece in enumerate(spec.pieces)
            for at in range(1, len(piece))
            if piece[:at] in number and piece[at:] in number
        ]
        merges = [(a, b) for _, a, b in sorted(splits, key=lambda each: each[0])]
        model = models.BPE(number, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
        made = Tokenizer(model)
        marks = normalizers.Replace(" ", SPACE)
        before = [normalizers.Prepend(SPACE)] if spec.space == ALWAYS else []
        made.normalizer = normalizers.Sequence([*before, marks])
    else:
        pairs = zip(spec.merges[::2], spec.merges[1::2], strict=True)
        merges = [(spec.pieces[a], spec.pieces[b]) for a, b in pairs]
        made = Tokenizer(models.BPE(number, merges, ignore_merges=spec.whole))
        made.pre_tokenizer = splitter(spec.split)
        if spec.composed:
            made.normalizer = normalizers.NFC()
    made.add_special_tokens(
        [
            AddedToken(piece, lstrip=number[piece] in spec.left, rstrip=number[piece] in spec.right)
            for piece in _SPECIAL
        ]
    )
    return made


def _compare(count: int) -> None:
    for name, spec in _specs().items():
        library, bpe = _library(spec), Bpe(spec)
        for text in _texts(count, seed=count):
            assert bpe.tokens(text) == library.encode(text).ids, (name, text)
        print(f"{name}: {count} texts are the library's")


if __name__ == "__main__":
    if sys.argv[1:]:
        _compare(int(sys.argv[1]))
    else:
        made = {
            name: [library.encode(text).ids for text in _texts(60)]
            for name, spec in _specs().items()
            for library in [_library(spec)]
        }
        _RECORD.write_text(json.dumps(made).replace("]], ", "]],\n") + "\n")
