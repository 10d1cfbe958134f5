"""Makes the generator of a release: its language, and the model that computes the next tokens."""

from __future__ import annotations

import struct
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from edgekit.device.runtime.agent.generate import (
    CANDIDATES,
    POSITION,
    SCORES,
    TOKENS,
    Generator,
    Reply,
    prompt_of,
    sampling_of,
)
from edgekit.device.runtime.agent.language import Language, language_of
from edgekit.device.runtime.agent.manifest import Manifest
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.task import GENERATE
from edgekit.device.runtime.errors import InputError

# Runs the model; the values of outputs as Array, or as memoryviews.
Run = Callable[[Mapping[str, Array]], Mapping[str, Any]]


def generator_of(manifest: Manifest, files: ReleaseFiles, run: Run) -> Generator:
    """InputError for a model that makes no texts."""
    task = manifest.task
    if task is None or task.kind != GENERATE:
        raise InputError(
            "generate: expected a language model, found "
            f"{f'one for {task.kind}' if task else 'a model without a task'}; compile a .gguf file"
        )
    language = Language(language_of(files.read(task.tokenizer), "language"))

    sizes = {v.shapes[TOKENS][-1] for v in manifest.every_variant()}
    if 1 not in sizes:
        raise InputError(
            "generate: expected a variant that takes one token, found others; compile with "
            f"--input-shape {TOKENS}=1,1, too"
        )

    def step(tokens: Sequence[int], position: int) -> Tuple[Sequence[float], Sequence[int]]:
        count = len(tokens)
        given = {
            TOKENS: Array("s32", (1, count), struct.pack(f"<{count}i", *tokens)),
            POSITION: Array("s32", (1,), struct.pack("<i", position)),
        }
        made = run(given)
        return values_of(made[SCORES], "f"), values_of(made[CANDIDATES], "i")

    return Generator(language, step, sorted(sizes, reverse=True))


def values_of(made: Any, code: str) -> Sequence[Any]:
    """The numbers of an output, of 4 bytes each."""
    data = made.data if isinstance(made, Array) else bytes(made)
    return struct.unpack(f"<{len(data) // 4}{code}", data)


class Replies:
    """The texts of a session, piece by piece as they are asked for."""

    def __init__(self, make: Callable[[], Generator]) -> None:
        self._make = make
        self._generator: Optional[Generator] = None
        self._reply: Optional[Reply] = None
        self._pieces: Iterator[str] = iter(())

    def begin(self, document: Mapping[str, Any]) -> Dict[str, Any]:
        """Prepares the continuation of a request's `prompt`; its answer. InputError."""
        generator = self._generator = self._generator or self._make()
        self._pieces = iter(())  # ends the text before, if it has not
        tokens = prompt_of(generator.language, document.get("prompt"))
        sampling = sampling_of(document.get("sampling", {}), "sampling")
        self._reply = generator.reply(tokens, sampling)
        self._pieces = iter(self._reply)
        return {"prompt_tokens": len(tokens), "context": generator.language.spec.context}

    def proceed(self) -> Dict[str, Any]:
        """The next piece of the text; `text` is None behind the last one."""
        reply = self._reply
        if reply is None:
            raise InputError("expected a request to generate before one for more, found none")
        return {
            "text": next(self._pieces, None),
            "finish": reply.finish,
            "tokens": reply.tokens,
            "prompt_seconds": reply.prompt_seconds,
            "seconds": reply.seconds,
        }

    def forget(self) -> None:
        """Follows a reset of the model's state."""
        self._pieces = iter(())
        if self._generator is not None:
            self._generator.forget()
