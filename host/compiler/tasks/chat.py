"""Reads what a chat template puts around messages: it is rendered here, since boards have no
Jinja."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jinja2.exceptions import TemplateError
from jinja2.nodes import For, Macro, Node
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from edgekit.device.runtime.agent.language import ASSISTANT, SYSTEM, USER, ChatSpec
from edgekit.host.common.addresses import more_addresses

_MOST_TEMPLATE = 1 << 16
_MOST_NESTED, _MOST_STEPS = 4, 64  # loops in loops, and steps of each: templates may be hostile
_MOST_BITS = 4096  # of a number that is computed
_MOST_BYTES = 64 << 20  # of memory
_DATE = "26 Jul 2024"  # that templates show if they are given none
# Contents that no template contains.
_ASKED, _TOLD, _ASKED_NEXT, _RULES = (f"\u2063{name}\u2063" for name in "abcd")
_Rendered = Callable[..., str]


def chat_of(template: str, first: str, last: str, added: bool) -> tuple[ChatSpec | None, str]:
    """The texts around messages, or why they are not known. `first` and `last` are the texts of the
    tokens before and after a text; if the first is `added` to all texts, it is left out here.

    A template may do anything: the texts count only if a longer conversation has the same ones.
    """
    if len(template) > _MOST_TEMPLATE:
        return None, f"its chat template has {len(template)} characters"
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["range"] = _range
    environment.globals["strftime_now"] = lambda _: _DATE

    def rendered(messages: Sequence[tuple[str, str]], reply: bool = False) -> str:
        dialog = [{"role": role, "content": content} for role, content in messages]
        made = environment.from_string(template).render(
            messages=dialog, bos_token=first, eos_token=last, add_generation_prompt=reply
        )
        return made.removeprefix(first) if added else made

    try:
        with more_addresses(_MOST_BYTES):
            if _nested(environment.parse(template)) > _MOST_NESTED:
                raise ValueError("too many loops in loops")
            return _texts_around(rendered), ""
    except MemoryError:
        return None, f"its chat template takes more than {_MOST_BYTES >> 20} MiB"
    except (
        TemplateError,
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        SyntaxError,
        RecursionError,
    ) as error:
        return None, f"its chat template could not be read ({error!s:.60})"


class _Environment(ImmutableSandboxedEnvironment):
    """Computes no numbers that take minutes, such as 9 ** (9 ** 9)."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length()
            bits = bits * abs(right) if operator == "**" else bits + right.bit_length()
            if bits > _MOST_BITS:
                raise ValueError(f"a number of {bits} bits")
        return super().call_binop(context, operator, left, right)


def _texts_around(rendered: _Rendered) -> ChatSpec:
    opening, reply = _parts(rendered([(USER, _ASKED)], True), _ASKED)
    talk = [(USER, _ASKED), (ASSISTANT, _TOLD), (USER, _ASKED_NEXT)]
    start, answer, again, last = _parts(rendered(talk, True), _ASKED, _TOLD, _ASKED_NEXT)
    if start != opening or last != reply:
        raise ValueError("texts around messages depend on other messages")
    try:
        before, after, *others = _parts(
            rendered([(SYSTEM, _RULES), *talk], True), _RULES, _ASKED, _TOLD, _ASKED_NEXT
        )
        system = (before, after) if others == [answer, again, reply] else ()
    except (ValueError, TemplateError):
        system = ()
    return ChatSpec(opening, system, answer, again, reply)


def _parts(text: str, *marks: str) -> list[str]:
    """The texts between marks, each of which must occur once; ValueError if one does not."""
    found = []
    for mark in marks:
        if text.count(mark) != 1:
            raise ValueError("a message is not in the text, or not once")
        part, text = text.split(mark)
        found.append(part)
    return [*found, text]


def _nested(node: Node) -> int:
    """How many loops, or macros, are in one another at most."""
    inner = max(map(_nested, node.iter_child_nodes()), default=0)
    return inner + isinstance(node, (For, Macro))


def _range(*ends: int) -> range:
    steps = range(*ends)
    if len(steps) > _MOST_STEPS:
        raise ValueError(f"a loop of {len(steps)} steps")
    return steps


def _refuse(reason: str) -> None:
    raise ValueError(reason)
