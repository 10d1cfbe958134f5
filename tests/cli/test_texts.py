"""Models of texts: `edgekit run --input texts.txt`, programs on the board, OpenAI's interface."""

from __future__ import annotations

import base64
import json
import shutil
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.application import open as open_on_board
from edgekit.device.runtime.errors import InputError
from edgekit.host.deploy.api import connect
from tests.cli.test_detect import served
from tests.support.text_models import SPECIAL, VOCABULARY, WIDTH, text_model, tokenizer_document

onnxruntime = pytest.importorskip("onnxruntime")

_TEXTS = ("the cat sits on the mat", "a cat's mat", "unsaid: 42%")
_CAT = [SPECIAL.index("[CLS]"), VOCABULARY.index("cat"), SPECIAL.index("[SEP]")]


@pytest.fixture
def lines(home):
    (home / "texts.txt").write_text("\n".join(_TEXTS[:2]) + "\n\n  " + _TEXTS[2] + "\n")
    return "texts.txt"


def _run(path: Any, tokens: list[int], length: int) -> Any:
    """The outputs of ONNX Runtime for tokens that are padded with 0."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ids = np.zeros((1, length), np.int64)
    ids[0, : len(tokens)] = tokens
    given = {"input_ids": ids, "attention_mask": (ids != 0) * 1, "token_type_ids": ids * 0}
    known = {i.name for i in session.get_inputs()}
    return session.run(None, {k: v.astype(np.int64) for k, v in given.items() if k in known})[0]


@pytest.mark.slow
def test_texts_are_compared_by_their_vectors(edgekit, home, lines):
    path = text_model(home)
    done = edgekit("run", path, "--input", lines, "--json")
    assert done.code == 0, done.err
    assert "open shapes are input_ids=1,128" in done.err
    assert [each["text"] for each in done.document["inputs"]] == list(_TEXTS)
    shown = edgekit("run", "--input", lines).out.splitlines()
    assert shown[-4] == f"cosine   of 3 vectors of {WIDTH} values"

    states = _run(path, _CAT, 128)[0, : len(_CAT)].sum(0)
    wanted = pytest.approx((states / np.linalg.norm(states)).tolist(), abs=1e-5)
    root = home.parent / "home/boards/local"
    with open_on_board(root=root) as model:
        assert model.embed("cat") == wanted
        with pytest.raises(InputError, match="expected a text, found bytes"):
            model.embed(b"cat")
    asked = {
        "/embed": b"cat",
        "/v1/embeddings": json.dumps({"input": ["cat", "mat"], "model": "m"}).encode(),
        "/v1/embed": b"",
    }
    answers = served(home, root, asked)
    assert json.loads(answers["/embed"][1]) == {"vector": wanted}
    data = json.loads(answers["/v1/embeddings"][1])["data"]
    assert data[0]["embedding"] == wanted and [each["index"] for each in data] == [0, 1]
    assert answers["/v1/embed"][0] == 404


@pytest.mark.slow
def test_openai_asks_for_base64_and_gets_errors_in_its_form(edgekit, home):
    assert edgekit("deploy", text_model(home)).code == 0
    root = home.parent / "home/boards/local"
    asked = {"input": "cat", "encoding_format": "base64"}
    answer = served(home, root, {"/v1/embeddings": json.dumps(asked).encode()})["/v1/embeddings"]
    encoded = json.loads(answer[1])["data"][0]["embedding"]
    with open_on_board(root=root) as model:
        assert np.frombuffer(base64.b64decode(encoded), "<f4") == pytest.approx(model.embed("cat"))
    listed, no_object = "expected 'input' to be at most", "expected a JSON object"
    refused = {
        b"{": no_object, b"[]": no_object, b"\xff": no_object, b"{}": listed,
        b'{"input": [[1, 2]]}': listed, b'{"input": 3}': listed,
    }  # fmt: skip
    for bad, expected in refused.items():
        code, said = served(home, root, {"/v1/embeddings": bad})["/v1/embeddings"]
        assert code == 400
        assert expected in json.loads(said)["error"]["message"]


@pytest.mark.slow
def test_the_first_token_counts_where_the_configuration_says_so(edgekit, home):
    path = text_model(home)
    (home / "1_Pooling").mkdir()
    (home / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    done = edgekit("deploy", path, "--input-shape", "input_ids=1,7")
    assert done.code == 0 and "the first token" in done.err
    state = _run(path, _CAT, 7)[0, 0]
    with open_on_board(root=home.parent / "home/boards/local") as model:
        wanted = (state / np.linalg.norm(state)).tolist()
        assert model.embed("cat") == pytest.approx(wanted, abs=1e-5)


@pytest.mark.slow
def test_a_tokenizer_of_pieces_by_probability(edgekit, home):
    path = text_model(home)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁cat", "c", "a", "t", "▁c"]
    around = {name: {"id": name, "ids": [i], "tokens": [name]} for i, name in enumerate(pieces[:4])}
    single = [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]
    single += [{"SpecialToken": {"id": "</s>"}}]
    document = {
        "added_tokens": [{"id": i, "content": p, "special": True} for i, p in enumerate(around)],
        "normalizer": {"type": "NFKC"},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "post_processor": {"type": "TemplateProcessing", "single": single,
                           "special_tokens": around},
        "model": {"type": "Unigram", "unk_id": 3, "vocab": [[p, -float(i)] for i, p in
                                                            enumerate(pieces)]},
    }  # fmt: skip
    (home / "tokenizer.json").write_text(json.dumps(document))
    assert edgekit("deploy", path, "--input-shape", "input_ids=1,8").code == 0
    with connect("local").open() as session:
        assert session.tokens("ｃat at!")["input_ids"].tolist() == [[0, 5, 4, 7, 8, 3, 2, 1]]
        assert session.tokens("cat")["attention_mask"].tolist() == [[1, 1, 1, 0, 0, 0, 0, 0]]


@pytest.mark.slow
def test_texts_are_classified(edgekit, home, lines):
    path = text_model(home, classes=3)
    names = {"0": "bad", "1": "neutral", "2": "good"}
    (home / "config.json").write_text(json.dumps({"model_type": "bert", "id2label": names}))
    done = edgekit("run", path, "--input", lines, "--json")
    assert done.code == 0, done.err
    root = home.parent / "home/boards/local"
    scores = np.exp(_run(path, _CAT, 128)[0].astype(np.float64))
    with open_on_board(root=root) as model:
        best, *_ = model.classify("cat")
    assert best.label == names[str(scores.argmax())]
    assert best.score == pytest.approx(scores.max() / scores.sum(), abs=1e-5)
    assert [each["top"][0][0]["label"] for each in done.document["inputs"]]


@pytest.mark.slow
def test_short_texts_take_the_short_variant(edgekit, home):
    shapes = (option for n in (4, 16) for option in ("--input-shape", f"input_ids=1,{n}"))
    assert edgekit("deploy", text_model(home), *shapes).code == 0
    with connect("local").open() as session:
        found = {text: session.tokens(text)["input_ids"].shape for text in ("cat", *_TEXTS)}
    assert found == {"cat": (1, 4), **dict.fromkeys(_TEXTS, (1, 16))}


@pytest.mark.slow
def test_what_texts_need_is_said(edgekit, home, lines):
    path = text_model(home)
    (home / "bytes.txt").write_bytes(b"\xff\xfe")
    (home / "empty.txt").write_text("\n \n")
    for name, said in (
        ("bytes.txt", "bytes.txt: expected a text in UTF-8, found other bytes"),
        ("empty.txt", "empty.txt: expected a text in each line, found none"),
    ):
        done = edgekit("run", path, "--input", name)
        assert done.code == 2 and said in done.err.splitlines()[-1]
    other = tokenizer_document()
    for change, said in (
        ({"model": {"type": "WordLevel"}}, "expected WordPiece, BPE or Unigram tokens"),
        ({"model": {"type": "Unigram", "vocab": []}}, "unk_id: expected the number of a piece"),
        ({"normalizer": {"type": "NFC"}}, "expected BertNormalizer, as BERT has, found NFC"),
        ({"model": 3}, "expected a tokenizer as the library tokenizers writes it"),
    ):
        (home / "tokenizer.json").write_text(json.dumps({**other, **change}))
        done = edgekit("compile", path, "--task", "embed", "-o", "x.ekb")
        assert done.code == 2 and said in done.err.splitlines()[-1]
    (home / "tokenizer.json").unlink()
    fixed = shutil.move(text_model(home, length=8), home / "fixed.onnx")
    (home / "tokenizer.json").unlink()
    done = edgekit("compile", fixed, "--task", "embed", "-o", "x.ekb")
    assert (
        done.code == 2
        and "expected tokenizer.json or vocab.txt next to fixed" in done.err.splitlines()[-1]
    )
    done = edgekit("run", fixed, "--input", lines)
    assert (
        done.code == 2
        and "expected a model of texts, known by tokenizer.json" in done.err.splitlines()[-1]
    )
