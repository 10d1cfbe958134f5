"""Texts of language models: how tokens are chosen, where texts end, and what is kept of them."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from edgekit.device.runtime.agent.bpe import BYTES, BpeSpec
from edgekit.device.runtime.agent.generate import (
    CONTEXT,
    LENGTH,
    STOP,
    Generator,
    Sampling,
    choose,
    prompt_of,
    sampling_of,
)
from edgekit.device.runtime.agent.language import ChatSpec, Language, LanguageSpec
from edgekit.device.runtime.errors import InputError

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_BYTES = "Ã©"  # of an é, which takes two tokens
_PIECES = (*_LETTERS, *_BYTES, "<end>", "<user>")
_END, _USER = len(_PIECES) - 2, len(_PIECES) - 1
_CHAT = ChatSpec("<user>", (), "m", "<user>n", "r")


class _Alphabet:
    """A model that continues each letter with the next one; behind z comes an é, then the end."""

    def __init__(
        self, context: int = 64, chat: ChatSpec | None = None, sizes: Sequence[int] = (1,)
    ) -> None:
        special = (_END, _USER)
        tokenizer = BpeSpec(BYTES, "gpt2", _PIECES, (), (), special, special, ())
        self.steps: list[tuple[int, int]] = []
        self.generator = Generator(
            Language(LanguageSpec(tokenizer, (_END,), context, chat)), self._step, sizes
        )

    def _step(self, tokens: Sequence[int], position: int) -> tuple[Sequence[float], Sequence[int]]:
        self.steps.append((tokens[0], position))
        token = tokens[-1]
        others = [i for i in range(len(_PIECES)) if i not in (token + 1, _END)]
        return (5.0, *(-0.1 * i for i in range(len(others)))), (token + 1, *others)

    def said(self, prompt: Any, **sampling: Any) -> tuple[str, str]:
        tokens = prompt_of(self.generator.language, prompt)
        reply = self.generator.reply(tokens, Sampling(**sampling))
        text = "".join(reply)
        assert reply.prompt_tokens == len(tokens)
        return text, reply.finish


def test_the_most_likely_tokens_up_to_the_end_of_the_model() -> None:
    model = _Alphabet()
    assert model.said("uvw") == ("xyzé", STOP)
    assert model.steps[:3] == [(20, 0), (21, 1), (22, 2)]
    assert model.said("abc", most=4) == ("defg", LENGTH)


def test_bytes_of_a_character_come_together() -> None:
    model = _Alphabet()
    reply = model.generator.reply(prompt_of(model.generator.language, "y"), Sampling())
    assert list(reply) == ["z", "é"] and reply.tokens == 3
    cut = model.generator.reply(prompt_of(model.generator.language, "y"), Sampling(most=2))
    assert list(cut) == ["z", "\ufffd"]


@pytest.mark.parametrize(
    ("stop", "said"),
    [(("fg",), "cde"), (("zz", "e"), "cd"), (("defghx", "gh"), "cdef"), (("c",), ""),
     (("zéa",), "cdefghijklmnopqrstuvwxyzé")],
)  # fmt: skip
def test_texts_end_before_stop_words(stop: tuple[str, ...], said: str) -> None:
    assert _Alphabet().said("ab", stop=stop) == (said, STOP)


def test_a_full_context_is_said_and_kept() -> None:
    model = _Alphabet(context=5)
    assert model.said("abc") == ("def", CONTEXT)
    assert model.steps[-1] == (4, 4)
    del model.steps[:]
    assert model.said("abcde") == ("f", CONTEXT) and model.steps == [(4, 4)]
    with pytest.raises(InputError, match=r"expected a prompt of 1 to 5 tokens.*found 6"):
        model.said("abcdef")
    with pytest.raises(InputError, match="expected a prompt with at least one token, found an"):
        model.said("")


def test_what_was_computed_is_not_computed_again() -> None:
    model = _Alphabet()
    model.said("abcd", most=3)
    del model.steps[:]
    model.said("abcdefx", most=1)
    assert model.steps == [(23, 6)]  # the model's own tokens were kept, too
    del model.steps[:]
    model.said("abq", most=1)
    assert model.steps == [(16, 2)]
    model.generator.forget()
    model.said("abq", most=1)
    assert len(model.steps) == 4


@pytest.mark.parametrize(
    ("count", "context", "positions"),
    [(8, 64, [0]), (9, 64, [0, 8]), (6, 64, [0, 5]), (5, 64, [0, 1, 2, 3, 4]),
     (14, 16, [0, 8, 13]), (14, 15, [0, 8, 9, 10, 11, 12, 13]), (6, 7, [0, 1, 2, 3, 4, 5])],
)  # fmt: skip
def test_steps_that_are_not_full_stay_in_the_context(
    count: int, context: int, positions: list[int]
) -> None:
    """They pay if more than half of them is used, but the last token is read alone."""
    model = _Alphabet(context, sizes=(8, 1))
    assert model.said(_LETTERS[:count], most=1)[0] == _LETTERS[count]
    assert [position for _, position in model.steps] == positions


def test_prompts_are_read_in_the_largest_steps() -> None:
    model = _Alphabet(sizes=(8, 4, 1))
    assert model.said("abcdefghijklmn", most=2) == ("op", LENGTH)
    assert [position for _, position in model.steps] == [0, 8, 13, 14]  # five of eight, one, ...


def test_empty_pieces_show_that_the_work_goes_on() -> None:
    model, seconds = _Alphabet(), itertools.count()
    generator = Generator(model.generator.language, model._step, clock=lambda: float(next(seconds)))
    reply = generator.reply(prompt_of(generator.language, "wxy"), Sampling())
    assert list(reply) == ["", "", "", "z", "", "é"]
    assert reply.prompt_seconds > 0 and reply.seconds > 0


def test_a_text_that_nobody_reads_on_leaves_the_model_usable() -> None:
    model = _Alphabet()
    pieces = iter(model.generator.reply((0,), Sampling()))
    assert next(pieces) == "b"
    del pieces
    assert model.said("b", most=2) == ("cd", LENGTH)


def test_seeds_and_limits_of_chance() -> None:
    model, wild = _Alphabet(), {"temperature": 3.0, "most": 20, "top_k": 64}
    texts = [model.said("a", **wild, seed=seed)[0] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    greedy = model.said("a", most=20)
    assert model.said("a", **{**wild, "top_k": 1}) == greedy
    assert model.said("a", **wild, top_p=1e-6) == greedy
    assert model.said("a", temperature=1e-9, most=20) == greedy


def test_tokens_are_drawn_by_their_probability() -> None:
    scores, chance = (2.0, 1.0, 0.5, -1.0), random.Random(5)
    sampling = Sampling(temperature=0.7, top_k=3, top_p=0.9)
    found = Counter(choose(scores, (7, 8, 9, 10), sampling, chance) for _ in range(4000))
    weights = [math.exp(score / 0.7) for score in scores[:3]]
    assert sum(weights[:2]) / sum(weights) > 0.9  # the third is one too many
    expected = weights[0] / sum(weights[:2])
    assert set(found) == {7, 8}
    assert abs(found[7] / 4000 - expected) < 4 * (expected * (1 - expected) / 4000) ** 0.5


def test_conversations_are_joined_by_the_texts_of_the_template() -> None:
    model = _Alphabet(chat=_CHAT)
    language = model.generator.language
    talk = [{"role": "user", "content": "a<end>"}, {"role": "assistant", "content": "b"}]
    talk.append({"role": "user", "content": [{"type": "text", "text": "c"}]})
    numbers = [_PIECES[i] for i in language.chat(talk)]
    # The end in the user's text has no token: it is "end", with signs that have no pieces.
    assert numbers == ["<user>", "a", "e", "n", "d", "m", "b", "<user>", "n", "c", "r"]
    for wrong in (
        [], talk[:2], talk[1:], [{"role": "system", "content": "x"}, talk[0]],
        [{"role": "tool", "content": "x"}], [{"role": "user"}], ["a"],
        [{"role": "user", "content": 3}],
    ):  # fmt: skip
        with pytest.raises(InputError, match="expected messages"):
            language.chat(wrong)
    with pytest.raises(InputError, match="without a chat template"):
        _Alphabet().said(talk)
    with pytest.raises(InputError, match="expected a text, or a list of messages, found int"):
        model.said(3)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"temperature": -1}, "temperature: expected a number from 0 to 100"),
        ({"temperature": "hot"}, "temperature: expected a finite number"),
        ({"top_p": 0}, "top_p: expected a number above 0"),
        ({"top_k": 65}, "top_k: expected a whole number from 1 to 64"),
        ({"seed": 0.5}, "seed: expected a whole number"),
        ({"most": -1}, "max_tokens: expected a whole number"),
        ({"stop": [""]}, "expected a text of 1 to 256 characters"),
        ({"stop": ["x"] * 17}, "stop: expected at most 16 texts"),
        ({"wild": True}, "unknown 'wild'"),
    ],
)
def test_options_that_do_not_fit_are_named(raw: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        sampling_of(raw, "sampling")
    assert said in str(caught.value)
    assert sampling_of({}, "sampling") == Sampling()
