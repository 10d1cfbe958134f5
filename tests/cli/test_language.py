"""Language models: `edgekit run --prompt` and `--ask`, and programs on the board."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.language import Language, language_of
from edgekit.device.runtime.application import open as open_on_board
from edgekit.device.runtime.errors import InputError
from edgekit.host.compiler.frontends.gguf.file import read_gguf
from edgekit.host.compiler.tasks.language import language_file
from edgekit.host.deploy.api import compile_model, connect
from tests.cli.test_detect import served
from tests.compiler.frontends.test_gguf_hub import hub_folder
from tests.support.gguf_files import (
    CONTEXT,
    Q8_0,
    WORDS,
    Model,
    Stored,
    continued,
    random_model,
    with_tokenizer,
)

_PROMPT = "in the bow"
_SCORED = {"tokenizer.ggml.model": "llama"}


@pytest.fixture
def model() -> Model:
    return with_tokenizer(random_model(tied=False))


def _text(model: Model, path: Any, prompt: Any, count: int) -> str:
    """What the model says, by NumPy."""
    data, _ = language_file(read_gguf(path).about, WORDS, CONTEXT)
    language = Language(language_of(data, "x"))
    tokens = language.prompt(prompt) if isinstance(prompt, str) else language.chat(prompt)
    made = continued(model, tokens, count)
    made = made[: made.index(WORDS - 1)] if WORDS - 1 in made else made
    return b"".join(map(language.bpe.bytes_of, made)).decode("utf-8", "replace")


def test_texts_are_continued_and_questions_answered(edgekit: Any, home: Any, model: Model) -> None:
    path = model.write(home / "llm.gguf")
    wanted = _text(model, path, _PROMPT, 9)
    done = edgekit("run", path, "--prompt", _PROMPT, "--max-tokens", "9")
    assert done.code == 0, done.err
    assert done.out == f"{wanted}\n" and len(wanted) > 3
    last = done.err.splitlines()[-1]
    assert last.startswith("9 tokens, ") and "a second; prompt of 7, " in last

    done = edgekit("run", "--prompt", _PROMPT, "--max-tokens", "9", "--stop", wanted[2:4], "--json")
    assert done.document["text"] == wanted[:2] and done.document["finish"] == "stop"
    asked = [{"role": "user", "content": "what"}]
    done = edgekit("run", "--ask", "what", "--max-tokens", "6", "--json")
    assert done.document["text"] == _text(model, path, asked, 6)

    drawn = [
        edgekit("run", "--prompt", "a", "--max-tokens", "12", "--temperature", "3", "--seed", seed)
        for seed in ("1", "1", "2")
    ]
    assert drawn[0].out == drawn[1].out != drawn[2].out


@pytest.mark.exhaustive
def test_a_cache_of_bytes_takes_less_and_says_the_same(
    edgekit: Any, home: Any, model: Model
) -> None:
    path = model.write(home / "llm.gguf")
    sizes = {}
    for option in ((), ("--kv-cache", "int8")):
        done = edgekit("compile", path, *option, "--json")
        sizes[option] = done.document["state_bytes"]
        done = edgekit("run", path, "--prompt", _PROMPT, "--max-tokens", "9", *option)
        assert done.code == 0, done.err
        assert done.out == f"{_text(model, path, _PROMPT, 9)}\n"
    plain, small = sizes.values()
    assert plain == 2 * 2 * 2 * CONTEXT * 16 * 4 and small < 0.4 * plain  # with alignment
    done = edgekit("compile", path, "--kv-cache", "int8")
    assert done.out.splitlines()[0].endswith(f"states {small / 1024:.4g} KiB")
    board = connect("local")
    board.deploy(compile_model(path, kv_cache="int8"))
    with board.open() as session:
        pieces = list(session.generate(_PROMPT, most=9))
    assert "".join(each.text or "" for each in pieces) == _text(model, path, _PROMPT, 9)


@pytest.mark.slow
def test_a_full_context_is_said(edgekit: Any, home: Any, model: Model) -> None:
    path = model.write(home / "llm.gguf")
    done = edgekit("run", path, "--prompt", _PROMPT, "--context", "9")
    assert done.code == 0, done.err
    assert done.err.splitlines()[-1].startswith("the context is full; --context N")
    done = edgekit("run", "--prompt", _PROMPT * 2)
    assert done.code == 2 and "expected a prompt of 1 to 9 tokens" in done.err.splitlines()[-1]
    with connect("local").open() as session:
        with pytest.raises(Exception, match="expected a prompt of 1 to 9 tokens"):
            list(session.generate(_PROMPT * 2))
        assert [each.text for each in session.generate("a", most=1)][-1] is None


@pytest.mark.slow
def test_programs_on_the_board_generate(edgekit: Any, home: Any, model: Model) -> None:
    path = model.write(home / "llm.gguf")
    assert edgekit("deploy", path).code == 0
    with open_on_board(root=home.parent / "home/boards/local") as opened:
        reply = opened.generate(_PROMPT, max_tokens=9)
        assert "".join(reply) == _text(model, path, _PROMPT, 9)
        assert (reply.finish, reply.tokens, reply.prompt_tokens) == ("length", 9, 7)
        asked = [{"role": "user", "content": "what"}]
        assert "".join(opened.generate(asked, max_tokens=5)) == _text(model, path, asked, 5)
        opened.reset()
        assert "".join(opened.generate(_PROMPT, max_tokens=9)) == _text(model, path, _PROMPT, 9)
        with pytest.raises(InputError, match="temperature: expected a number from 0"):
            opened.generate("a", temperature=-1)
        with pytest.raises(InputError, match="embed: expected a model that was compiled with"):
            opened.embed("a")


@pytest.mark.slow
def test_a_prompt_is_read_in_chunks(edgekit: Any, home: Any, model: Model) -> None:
    model.about["llama.context_length"] = 128
    path = model.write(home / "llm.gguf")
    prompt = "a quick brown fox jumps over lazy dogs by a river in may"  # two chunks and a token
    wanted = _text(model, path, prompt, 6)
    assert len({*wanted}) > 2
    done = edgekit("run", path, "--prompt", prompt, "--max-tokens", "6", "--json")
    assert done.code == 0, done.err
    assert done.document["text"] == wanted and done.document["prompt_tokens"] == 51
    with open_on_board(root=home.parent / "home/boards/local") as opened:
        assert "".join(opened.generate(prompt, max_tokens=6)) == wanted
        opened.reset()
        assert "".join(opened.generate(prompt[:-2], max_tokens=3)) == _text(
            model, path, prompt[:-2], 3
        )
    done = edgekit("run", path, "--input-shape", "tokens=1,4", "--prompt", prompt)
    assert done.code == 2 and "expected a variant that takes one token" in done.err


@pytest.mark.slow
def test_a_folder_of_hugging_face_is_converted(edgekit: Any, home: Any) -> None:
    folder = hub_folder(home / "llm", random_model(tied=False))
    done = edgekit("compile", folder, "-o", "other.gguf")
    assert done.code == 0 and done.out == "wrote    other.gguf\n"
    asked = ("--prompt", "the", "--max-tokens", "4", "--json")
    first = edgekit("run", "other.gguf", *asked)
    assert first.code == 0 and first.document["prompt_tokens"] == 2  # one is put before
    done = edgekit("compile", folder, "-o", "llm.ekb")
    assert done.code == 0, done.err
    assert edgekit("deploy", "llm.ekb").code == 0
    assert edgekit("run", *asked).document["text"] == first.document["text"]
    done = edgekit("run", folder, "--prompt", "the")
    assert done.code == 2 and "(.gguf for a language model)" in done.complaint


@pytest.mark.slow
def test_a_folder_with_pieces_by_probability(edgekit: Any, home: Any) -> None:
    model = random_model(tied=False)
    folder = hub_folder(home / "llm", model)
    letters = [*map(chr, range(97, 97 + 26)), "▁", "▁the", "<unk>"]
    vocabulary = [[piece, -1.0 - i / 8] for i, piece in enumerate(letters)]
    vocabulary += [[f"<{i}>", -99.0] for i in range(len(letters), WORDS)]
    document = {
        "added_tokens": [{"id": WORDS - 1, "content": f"<{WORDS - 1}>", "special": True}],
        "normalizer": {"type": "Lowercase"}, "post_processor": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
        "model": {"type": "Unigram", "unk_id": len(letters) - 1, "vocab": vocabulary},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(document))
    assert edgekit("compile", folder, "-o", "llm.gguf").code == 0
    done = edgekit("run", "llm.gguf", "--prompt", "The cat", "--max-tokens", "4", "--json")
    assert done.code == 0, done.err
    tokens = [27, 26, 2, 0, 19]
    assert done.document["prompt_tokens"] == len(tokens)
    names = [piece for piece, _ in vocabulary]
    wanted = "".join(names[n] for n in continued(model, tokens, 4)).replace("▁", " ")
    assert done.document["text"] == wanted.replace("<unk>", "").replace(names[-1], "")


@pytest.mark.slow
def test_quantized_weights_take_their_size(edgekit: Any, home: Any) -> None:
    path = with_tokenizer(random_model(kind=Q8_0)).write(home / "llm.gguf")
    done = edgekit("compile", path, "-o", "llm.ekb", "--json")
    assert done.code == 0, done.err
    done = edgekit("run", path, "--prompt", _PROMPT, "--max-tokens", "3", "--weights", "int4")
    assert done.code == 0, done.err


def test_a_program_on_the_host_compiles_and_generates(home: Any, model: Model) -> None:
    path = model.write(home / "llm.gguf")
    board = connect("local")
    board.deploy(compile_model(path, context=12))
    with board.open() as session:
        pieces = list(session.generate(_PROMPT, temperature=0))
    assert "".join(each.text or "" for each in pieces) == _text(model, path, _PROMPT, 6)
    assert pieces[-1].finish == "context" and pieces[-1].tokens == 12 - 7 + 1


@pytest.mark.slow
def test_what_texts_need_is_said(edgekit: Any, home: Any, model: Model) -> None:
    for change, said in (
        ({"tokenizer.ggml.model": "bert"}, "expected gpt2, llama or t5, whose tokenizers run"),
        ({"tokenizer.ggml.model": "t5"}, "scores: expected a list of 96 values"),
        ({**_SCORED, "tokenizer.ggml.scores": ["a"] * WORDS}, "scores: expected numbers, found"),
        ({**_SCORED, "tokenizer.ggml.scores": [math.nan] * WORDS}, "scores: expected numbers"),
        ({"tokenizer.ggml.pre": "new"}, "tokenizer.ggml.pre: expected one of"),
        ({"tokenizer.ggml.tokens": ["a"] * 200}, "token_type: expected a list of 200 values"),
        ({"tokenizer.ggml.merges": ["t q7"]}, "merges: expected pairs of tokens, found 't q7'"),
    ):
        other = Model("llama", {**model.about, **change}, model.tensors)
        path = other.write(home / "llm.gguf")
        done = edgekit("compile", path, "--task", "generate", "-o", "x.ekb")
        assert done.code == 2 and said in done.err.splitlines()[-1]
    done = edgekit("run", path, "--prompt", "a")
    assert done.code == 2 and "expected a language model, found a model without a task" in done.err
    plain = with_tokenizer(random_model(), chat=False).write(home / "plain.gguf")
    done = edgekit("run", plain, "--ask", "a")
    assert done.code == 2 and "without a chat template" in done.err.splitlines()[-1]
    broken = Model("llama", model.about, {**model.tensors, "more": Stored(0, bytes(4), (1,))})
    done = edgekit("compile", broken.write(home / "llm.gguf"))
    assert (
        done.code == 2
        and "found more besides; choose a model without it" in done.err.splitlines()[-1]
    )
    for options, said in (
        (("--prompt", "a", "--input", "x.npz"), "expected --input or a text to continue"),
        (("--prompt", "a", "--ask", "b"), "expected --prompt or --ask, found both"),
        (("--seed", "1"), "expected --prompt or --ask with options for texts"),
        (("--prompt", "a", "--top-k", "65"), "top_k: expected a whole number from 1 to 64"),
    ):
        done = edgekit("run", *options)
        assert done.code == 2 and said in done.err.splitlines()[-1]
    shutil.copy(Path(__file__).parents[2] / "models/okay_nabu.tflite", home / "other.tflite")
    for option, said in (
        (("--task", "generate"), "expected a language model as .gguf, found other.tflite"),
        (("--kv-cache", "int8"), "expected a language model (.gguf) with --kv-cache, found"),
        (("--context", "9"), "expected a language model (.gguf) with --context, found another"),
    ):
        done = edgekit("compile", "other.tflite", *option)
        assert done.code == 2 and said in done.complaint


def _events(body: str) -> list[Any]:
    """The documents of a stream, which ends as OpenAI's does."""
    *lines, last = [line for line in body.split("\n\n") if line]
    assert last == "data: [DONE]" and all(line.startswith("data: ") for line in lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.slow
def test_openais_clients_get_texts(edgekit: Any, home: Any, model: Model) -> None:
    path = model.write(home / "llm.gguf")
    assert edgekit("deploy", path).code == 0
    messages = [{"role": "user", "content": "what"}]
    asked = {"max_tokens": 5, "temperature": 0}
    chat = {**asked, "messages": messages, "n": 1, "logprobs": None, "tools": []}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    wanted = _text(model, path, _PROMPT, 5), _text(model, path, messages, 5)
    where = {
        "/v1/completions": {**asked, "prompt": [_PROMPT]},
        "/v1/complete": {"prompt": _PROMPT},
        "/v1/chat/completions": chat,
    }
    board = home.parent / "home/boards/local"
    answers = served(home, board, {path: json.dumps(each).encode() for path, each in where.items()})
    made = json.loads(answers["/v1/completions"][1])
    assert made["object"] == "text_completion" and made["choices"][0]["text"] == wanted[0]
    assert made["choices"][0]["finish_reason"] == "length"
    assert made["usage"] == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    assert answers["/v1/complete"][0] == 404
    made = json.loads(answers["/v1/chat/completions"][1])
    assert made["choices"][0]["message"] == {"role": "assistant", "content": wanted[1]}
    assert made["object"] == "chat.completion" and made["model"] == "llm"

    where = {
        "/v1/completions": {**asked, "prompt": _PROMPT, "stream": True},
        "/v1/chat/completions": {**chat, **streamed},
    }
    answers = served(home, board, {path: json.dumps(each).encode() for path, each in where.items()})
    events = _events(answers["/v1/completions"][1])
    assert "".join(each["choices"][0]["text"] for each in events) == wanted[0]
    *events, usage = _events(answers["/v1/chat/completions"][1])
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 5
    deltas = [each["choices"][0]["delta"] for each in events]
    assert deltas[0] == {"role": "assistant", "content": ""} and deltas[-1] == {}
    assert "".join(each.get("content", "") for each in deltas) == wanted[1]
    assert [each["choices"][0]["finish_reason"] for each in events][-2:] == [None, "length"]


@pytest.mark.slow
def test_openais_clients_get_errors_in_its_form(edgekit: Any, home: Any, model: Model) -> None:
    assert edgekit("deploy", model.write(home / "llm.gguf")).code == 0
    ask = {"messages": [{"role": "user", "content": "a"}]}
    cases: list[tuple[Any, str]] = [
        ({"messages": "hello"}, "expected 'messages' to be a list of messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "expected messages with a role of"),
        ({"messages": [], "n": 2}, "expected 'n' to be 1, or left out, found '2'"),
        ({**ask, "logprobs": True}, "expected 'logprobs' to be false, or left out, found 'True'"),
        ({**ask, "tools": [{}]}, "expected 'tools' to be [], or left out"),
        ({**ask, "max_tokens": 0}, "expected 'max_tokens' to be 1 or more, found 0"),
        ({**ask, "max_tokens": -1}, "max_tokens: expected a whole number from 0"),
        ({"messages": [{"role": "user", "content": "i" * 99}]}, "expected a prompt of 1 to 24"),
        ({**ask, "temperature": "hot"}, "temperature: expected a finite number"),
        ({**ask, "stop": 3}, "expected 'stop' to be"),
        ([], "expected a JSON object, with whole numbers of at most 20 digits"),
        ({**ask, "seed": 10**30}, "expected a JSON object, with whole numbers of at most 20"),
    ]
    for asked, said in cases:
        body = {"/v1/chat/completions": json.dumps(asked).encode()}
        (answer,) = served(home, home.parent / "home/boards/local", body).values()
        assert answer[0] == 400 and said in json.loads(answer[1])["error"]["message"]
