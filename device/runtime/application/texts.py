"""Texts that a deployed language model writes, piece by piece."""

from __future__ import annotations

from typing import Any, Callable, ContextManager, Iterator

from edgekit.device.runtime.agent.generate import Reply, Sampling, prompt_of
from edgekit.device.runtime.application.loaded import Loaded


class Text:
    """A text of one prompt: iterate over it once; pieces come as they are computed.

    `finish` says why it ended: "stop" at the model's own end or a stop word, "length" at
    `max_tokens`, "context" where nothing more fits; it is empty before. `prompt_tokens` and
    `tokens` count those of the prompt and of the text so far, `prompt_seconds` and `seconds` are
    what they took. One release writes all of it.
    """

    def __init__(
        self,
        current: Callable[[], ContextManager[Loaded]],
        heartbeat: Callable[[Loaded], None],
        prompt: Any,
        sampling: Sampling,
    ) -> None:
        self._current, self._heartbeat = current, heartbeat
        self._prompt, self._sampling = prompt, sampling
        with current() as loaded:  # what is wrong with a prompt is said at once
            self._reply = self._begun(loaded)

    def __iter__(self) -> Iterator[str]:
        with self._current() as loaded:
            self._reply = self._begun(loaded)
            for piece in self._reply:
                self._heartbeat(loaded)
                yield piece

    @property
    def finish(self) -> str:
        return self._reply.finish

    @property
    def prompt_tokens(self) -> int:
        return self._reply.prompt_tokens

    @property
    def tokens(self) -> int:
        return self._reply.tokens

    @property
    def prompt_seconds(self) -> float:
        return self._reply.prompt_seconds

    @property
    def seconds(self) -> float:
        return self._reply.seconds

    def _begun(self, loaded: Loaded) -> Reply:
        generator = loaded.generator()
        return generator.reply(prompt_of(generator.language, self._prompt), self._sampling)
