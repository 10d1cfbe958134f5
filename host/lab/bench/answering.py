"""A worker of a comparison: questions as lines of JSON on stdin, answers on stdout."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Answer = Callable[[Message], Message]


def answer_questions(begin: Callable[[], tuple[Message, Answer]]) -> None:
    """Answers with what `begin` gives, after its first message, until the questions end."""
    # Libraries print to stdout as they like; the answers go where nothing else writes.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(message: Message) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    try:
        first, answer = begin()
        reply(first)
        for line in sys.stdin:
            reply(answer(json.loads(line)))
    # The other side turns every failure into its own error, whatever a library raised.
    except Exception as error:
        reply({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"})
