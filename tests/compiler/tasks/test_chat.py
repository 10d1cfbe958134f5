"""Chat templates of model families become the texts between messages."""

from __future__ import annotations

import pytest

from edgekit.host.compiler.tasks.chat import chat_of

_CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nHelp.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_LLAMA3 = (
    "{% for m in messages %}{% set c = '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + "
    "m.content | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set c = bos_token + c %}"
    "{% endif %}{{ c }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
_GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}"
    "{% endif %}{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role "
    "%}{{ '<start_of_turn>' + role + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
_LLAMA2 = (
    "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}"
    "{% set system = messages[0].content %}{% else %}{% set rest = messages %}"
    "{% set system = false %}{% endif %}{% for m in rest %}{% if loop.index0 == 0 and system %}"
    "{% set c = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + m.content %}{% else %}"
    "{% set c = m.content %}{% endif %}{% if m.role == 'user' %}"
    "{{ bos_token + '[INST] ' + c + ' [/INST]' }}{% else %}{{ ' ' + c + ' ' + eos_token }}"
    "{% endif %}{% endfor %}"
)


def test_the_texts_of_families() -> None:
    made, why = chat_of(_CHATML, "<|im_start|>", "<|im_end|>", False)
    assert made is not None and not why
    user, answer = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    assert made.opening == f"<|im_start|>system\nHelp.<|im_end|>\n{user}"
    assert made.system == ("<|im_start|>system\n", f"<|im_end|>\n{user}")
    assert (made.answer, made.again, made.reply) == (answer, f"<|im_end|>\n{user}", answer)

    made, _ = chat_of(_LLAMA3, "<|begin|>", "<|eot_id|>", True)
    assert made is not None and made.opening == "<|start_header_id|>user<|end_header_id|>\n\n"
    assert made.system[0] == "<|start_header_id|>system<|end_header_id|>\n\n"

    made, _ = chat_of(_GEMMA, "<bos>", "<eos>", True)
    assert made is not None and made.system == ()
    assert made.reply == "<end_of_turn>\n<start_of_turn>model\n"

    made, _ = chat_of(_LLAMA2, "<s>", "</s>", True)
    assert made is not None and made.opening == "[INST] "
    assert made.system == ("[INST] <<SYS>>\n", "\n<</SYS>>\n\n")
    assert (made.answer, made.again) == (" [/INST] ", " </s><s>[INST] ")
    assert made.reply == " [/INST]"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for m in messages %}", "could not be read"),
        ("{{ messages[9].content }}", "could not be read"),
        ("hello", "a message is not in the text"),
        ("{{ messages[0].content * 2 }}", "a message is not in the text"),
        ("{% for m in messages %}{{ m.content }}{{ messages | length }}{% endfor %}", "depend on"),
        ("{{ raise_exception('tools only') }}", "tools only"),
        ("{{ ''.__class__.__mro__ }}", "could not be read"),
        ("{{ 1 // 0 }}", "could not be read"),
        ("x" * 70000, "has 70000 characters"),
        ("{% for i in range(99999) %}{% endfor %}", "a loop of 99999 steps"),
        ("{{ 'a' * 10**9 }}", "takes more than 64 MiB"),
        ("{{ '%999999999d' % 1 }}", "takes more than 64 MiB"),
        ("{{ messages[0].content.center(10**10) }}", "takes more than 64 MiB"),
        ("{{ 9 ** (9 ** 9) }}", "a number of 1549681956 bits"),
        ("{% for i in messages %}" * 25 + "{% endfor %}" * 25, "too many loops in loops"),
        ("{{ (" + "(" * 5000 + ")" * 5001 + "}}", "could not be read"),
    ],
)
def test_templates_that_are_not_understood(template: str, said: str) -> None:
    made, why = chat_of(template, "", "", False)
    assert made is None and said in why and "\n" not in why
