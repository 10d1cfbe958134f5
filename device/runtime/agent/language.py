"""The file of a release that says how a language model reads and writes texts."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from edgekit.device.runtime.agent.bpe import Bpe, BpeSpec, bpe_of
from edgekit.device.runtime.agent.strict import bad, file_keys, integer, keys_of
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.record import Record

SCHEMA = "edgekit.language/1"
SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
ROLES = (SYSTEM, USER, ASSISTANT)
_MOST_TEXT = 1 << 14
_MOST_CONTEXT = 1 << 20


class ChatSpec(Record):
    """The texts of a conversation between the contents of its messages: `opening` before the first
    question, or the two of `system`, before and after what precedes it; `answer` between a question
    and its answer, `again` between that and the next question, and `reply` after the last question.
    `system` is empty if the model knows no such message.
    """

    opening: str
    system: Tuple[str, ...]
    answer: str
    again: str
    reply: str


class LanguageSpec(Record):
    """`ends` are the tokens after which nothing follows; `context` is how many tokens the model
    keeps; `chat` is None for a model that was not trained to answer."""

    tokenizer: BpeSpec
    ends: Tuple[int, ...]
    context: int
    chat: Optional[ChatSpec] = None


def language_of(data: bytes, where: str) -> LanguageSpec:
    """Checks the file of a release."""
    keys = file_keys(data, where, SCHEMA, LanguageSpec.field_names)
    tokenizer = bpe_of(keys["tokenizer"], f"{where}.tokenizer")
    ends = keys["ends"]
    if not isinstance(ends, list):
        raise bad(f"{where}.ends", "a list", type(ends).__name__)
    last = len(tokenizer.pieces) - 1
    return LanguageSpec(
        tokenizer,
        tuple(integer(end, f"{where}.ends", 0, last) for end in ends),
        integer(keys["context"], f"{where}.context", 1, _MOST_CONTEXT),
        None if keys["chat"] is None else _chat_of(keys["chat"], f"{where}.chat"),
    )


def _chat_of(raw: object, where: str) -> ChatSpec:
    keys = keys_of(raw, where, ChatSpec.field_names)
    system = keys["system"]
    if not isinstance(system, list) or len(system) not in (0, 2):
        raise bad(f"{where}.system", "two texts or none", system)
    texts = (keys["opening"], *system, keys["answer"], keys["again"], keys["reply"])
    if not all(isinstance(each, str) and len(each) <= _MOST_TEXT for each in texts):
        raise bad(where, f"texts of at most {_MOST_TEXT} characters", "others")
    return ChatSpec(texts[0], tuple(system), *texts[-3:])


class Language:
    """Reads texts and conversations as tokens."""

    def __init__(self, spec: LanguageSpec) -> None:
        self.spec = spec
        self.bpe = Bpe(spec.tokenizer)

    def prompt(self, text: str) -> List[int]:
        """The tokens of a text that the model continues."""
        return [*self.spec.tokenizer.before, *self.bpe.tokens(text)]

    def chat(self, messages: Sequence[object]) -> List[int]:
        """The tokens of a conversation, up to where the assistant answers.

        InputError for a model without a form for conversations, or messages of other roles.
        """
        spec = self.spec.chat
        if spec is None:
            raise InputError(
                "expected a model that was trained to answer, found one without a chat template; "
                "give it a text to continue"
            )
        given = [_message_of(message) for message in messages]
        roles = [role for role, _ in given]
        begins = roles[:1] == [SYSTEM] and bool(spec.system)
        expected = [SYSTEM] * begins + [USER, ASSISTANT] * len(roles)
        if roles != expected[: len(roles)] or roles[-1:] != [USER]:
            known = f"{SYSTEM}, {USER}" if spec.system else USER
            raise InputError(
                f"expected messages of {known}, {ASSISTANT}, {USER} and so on, the last one of "
                f"{USER}, found {', '.join(roles[:6]) or 'none'}"
            )
        texts = [*spec.system] if begins else [spec.opening]
        texts += [spec.answer, spec.again] * len(roles)
        parts = [part for text, (_, content) in zip(texts, given)
                 for part in ((text, True), (content, False))]  # fmt: skip
        return [*self.spec.tokenizer.before, *self.bpe.tokens_of([*parts, (spec.reply, True)])]


def _message_of(message: object) -> Tuple[str, str]:
    """Role and content."""
    known = message if isinstance(message, dict) else {}
    role, content = known.get("role"), known.get("content")
    if isinstance(content, list):  # of parts, as OpenAI's clients may send them
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(map(str, parts)) if None not in parts else None
    if role not in ROLES or not isinstance(content, str):
        raise InputError(
            f"expected messages with a role of {', '.join(ROLES)} and a text as content, found "
            f"{str(role)[:40]!r}"
        )
    return str(role), content
