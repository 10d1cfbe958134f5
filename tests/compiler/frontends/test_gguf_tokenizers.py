"""Tokenizers of Hugging Face, as boards have them behind a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.bpe import Bpe
from edgekit.host.compiler.frontends.gguf.file import read_gguf
from edgekit.host.compiler.frontends.gguf.hub import convert
from edgekit.host.compiler.tasks.language import bpe_spec
from edgekit.host.errors import InputError
from tests.compiler.frontends.test_gguf_hub import hub_folder, hub_tokenizer
from tests.support.gguf_files import WORDS, random_model


def _write(folder: Path, **changes: Any) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(hub_tokenizer(**changes)))


@pytest.mark.parametrize("composed", [True, False])
def test_only_some_tokenizers_compose_characters(composed: bool, tmp_path: Path) -> None:
    """Pythia's do, DeepSeek's that splits words as Qwen 2's does not."""
    folder = hub_folder(tmp_path / "llm", random_model())
    _write(folder, normalizer={"type": "NFC"} if composed else None)
    convert(folder, tmp_path / "m.gguf")
    spec = bpe_spec(read_gguf(tmp_path / "m.gguf").about)
    assert spec.steps == ((("nfc",),) if composed else ())


def test_spaces_that_belong_to_a_token_are_known(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "llm", random_model())
    document = hub_tokenizer()
    document["added_tokens"][0]["lstrip"] = document["added_tokens"][1]["rstrip"] = True
    (folder / "tokenizer.json").write_text(json.dumps(document))
    convert(folder, tmp_path / "m.gguf")
    spec = bpe_spec(read_gguf(tmp_path / "m.gguf").about)
    assert (spec.left, spec.right) == ((WORDS - 2,), (WORDS - 1,))
    tokens = Bpe(spec).tokens("A <s> A</s> A")
    assert tokens == [32, WORDS - 2, *Bpe(spec).tokens(" A"), WORDS - 1, 32]


@pytest.mark.parametrize(
    ("behavior", "inverted", "known"),
    [("Isolated", False, True), ("Removed", True, True), ("Isolated", True, False),
     ("MergedWithNext", False, False)],
)  # fmt: skip
def test_words_are_what_a_pattern_matches(
    behavior: str, inverted: bool, known: bool, tmp_path: Path
) -> None:
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    folder = hub_folder(tmp_path / "llm", random_model())
    made = {"type": "Sequence", "pretokenizers": [{**split, "invert": inverted}, level]}
    _write(folder, pre_tokenizer=made)
    if not known:
        with pytest.raises(InputError, match="expected words split as GPT-2"):
            convert(folder, tmp_path / "m.gguf")
        return
    convert(folder, tmp_path / "m.gguf")
    assert bpe_spec(read_gguf(tmp_path / "m.gguf").about).split == "llama3"


def _marks(**changes: Any) -> dict[str, Any]:
    """Of pieces with marks for spaces, as Llama 2 has them."""
    pieces = ["<unk>", "▁", "a", "b", "c", "bc", "ab", "▁a", "▁▁"]
    model = {"type": "BPE", "vocab": {p: i for i, p in enumerate(pieces)}, "unk_token": "<unk>",
             "merges": ["b c", "a b", "▁ a", "▁ ▁"], "fuse_unk": True}  # fmt: skip
    steps = [{"type": "Prepend", "prepend": "▁"},
             {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]  # fmt: skip
    made = hub_tokenizer(model=model, added_tokens=[], pre_tokenizer=None, post_processor=None)
    made["normalizer"] = {"type": "Sequence", "normalizers": steps}
    return {**made, **changes}


def _said(folder: Path, document: dict[str, Any], text: str) -> list[str]:
    (folder / "tokenizer.json").write_text(json.dumps(document))
    convert(folder, folder.with_suffix(".gguf"))
    spec = bpe_spec(read_gguf(folder.with_suffix(".gguf")).about)
    return [spec.pieces[n] for n in Bpe(spec).tokens(text)]


def test_pairs_are_joined_in_the_order_of_merges(tmp_path: Path) -> None:
    """Only those: scores of pieces would also join "a" and "bc" if that were a piece."""
    folder, document = hub_folder(tmp_path / "llm", random_model()), _marks()
    assert _said(folder, document, "abc ab  a") == ["▁a", "bc", "▁", "ab", "▁", "▁a"]
    assert _said(folder, document, "xyb") == ["▁", "<unk>", "b"]
    document["model"]["vocab"]["abc"] = 9  # which no pair makes
    assert _said(folder, document, "b abc") == ["▁", "b", "▁a", "bc"]


@pytest.mark.parametrize(
    ("scheme", "split", "wanted"),
    [
        ("always", False, ["▁a", "|", "▁a", "b", "▁a"]),
        ("first", False, ["▁a", "|", "a", "b", "▁a"]),
        ("never", False, ["a", "|", "a", "b", "▁a"]),
        ("first", True, ["▁a", "|", "a", "b", "▁a"]),
    ],
)
def test_a_mark_is_put_where_metaspace_says(
    scheme: str, split: bool, wanted: list[str], tmp_path: Path
) -> None:
    before = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
    added = [{"id": 9, "content": "|", "special": True}]
    document = _marks(normalizer=None, pre_tokenizer=before, added_tokens=added)
    document["model"]["merges"] = ["▁ a", "▁ ▁"]
    folder = hub_folder(tmp_path / "llm", random_model())
    assert _said(folder, document, "a|ab a") == wanted
    assert _said(folder, document, " a")[0] == "▁a"  # no mark before a mark
    assert _said(folder, document, "b  a")[-2:] == ["▁", "▁a"]


def test_added_tokens_are_found_as_the_library_finds_them(tmp_path: Path) -> None:
    added = [
        {"id": 9, "content": "ca", "single_word": True},
        {"id": 10, "content": "cb", "normalized": True},
        {"id": 11, "content": "cc", "normalized": False},
    ]
    folder, document = hub_folder(tmp_path / "llm", random_model()), _marks(added_tokens=added)
    assert _said(folder, document, "ca bca") == ["ca", "▁▁", "bc", "a"]
    # The marks that are put before a text are also before a token that is found after them.
    assert _said(folder, document, "cb acb") == ["cb", "▁a", "c", "b"]
    assert _said(folder, document, "acca") == ["▁a", "cc", "▁a"]


def test_steps_before_the_model_are_made_or_named(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "llm", random_model())
    steps = _marks()["normalizer"]["normalizers"]
    lower = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *steps]}
    assert _said(folder, _marks(normalizer=lower), "ABC") == ["▁a", "bc"]
    for change, said in (
        ({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Nmt"}, *steps]}}, "Nmt"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "Whitespace"),
        ({"model": {**_marks()["model"], "end_of_word_suffix": "</w>"}}, "end_of_word_suffix"),
    ):
        with pytest.raises(InputError, match=said):
            _said(folder, _marks(**change), "a")
