"""Question-and-answer loop of a benchmark worker: JSON lines on stdin and stdout."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Answer = Callable[[Message], Message]


def answer_questions(begin: Callable[[], tuple[Message, Answer]]) -> None:
    """Sends the greeting from `begin`, then answers questions with its function until EOF."""
    # Libraries print to stdout freely, so replies use a private copy of the descriptor.
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
    # The parent turns every failure into its own error, whatever a library raised.
    except Exception as error:
        reply({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"})
