"""Implements `edgekit run --prompt` and `--ask`: texts of language models, printed as they come."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.release import Generated, InferenceSession

Prompt = Annotated[
    str | None,
    typer.Option(
        "--prompt", metavar="TEXT", show_default=False, help="Text that a language model continues."
    ),
]
Ask = Annotated[
    str | None,
    typer.Option(
        "--ask",
        metavar="TEXT",
        show_default=False,
        help="Question to a language model that was trained to answer.",
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        metavar="N",
        min=1,
        show_default=False,
        help="Maximum number of tokens to write (default: until the context is full).",
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        metavar="T",
        show_default=False,
        help="Randomness of the text (default: 0, always the most likely token).",
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        "--top-k",
        metavar="N",
        min=1,
        show_default=False,
        help="Draw from the N most likely tokens, at most 64 (default: 40).",
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        metavar="P",
        show_default=False,
        help="Draw from the likeliest tokens that together have this probability (default: 1).",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="N", show_default=False, help="Seed of the tokens drawn (default: 0)."
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="TEXT",
        show_default=False,
        help="Stop before this text; repeat it for more.",
    ),
]


@dataclass(frozen=True)
class TextOptions:
    """What was asked of a language model; `temperature` and so on are None for the defaults."""

    prompt: str | None
    ask: str | None
    most: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None
    stop: list[str] | None

    @property
    def wanted(self) -> bool:
        return self.prompt is not None or self.ask is not None

    def check(self, **others: Any) -> None:
        """Rejects options that do not go together; `others` are those of other kinds of runs."""
        if not self.wanted:
            if self.sampling:
                raise InputError(
                    "expected --prompt or --ask with options for texts, found neither; see: "
                    "edgekit run --help"
                )
            return
        if self.prompt is not None and self.ask is not None:
            raise InputError("expected --prompt or --ask, found both; name one")
        for name, value in others.items():
            if value not in (None, False, ""):
                option = f"--{name.replace('_', '-')}"
                raise InputError(f"expected {option} or a text to continue, found both; name one")

    @property
    def sampling(self) -> dict[str, Any]:
        """The options that were given."""
        named = [f.name for f in fields(self) if f.name not in ("prompt", "ask")]
        return {name: v for name in named if (v := getattr(self, name)) not in (None, [])}

    def run(self, session: InferenceSession, device: Board, as_json: bool) -> None:
        """Prints the text as it comes and then, to stderr, how fast that was."""
        from edgekit.host.cli.output import emit, note

        asked = self.prompt if self.ask is None else [{"role": "user", "content": self.ask}]
        assert asked is not None
        pieces, last = [], None
        for last in session.generate(asked, **self.sampling):
            pieces.append(last.text or "")
            if not as_json:
                sys.stdout.write(_shown(pieces[-1]))
                sys.stdout.flush()
        assert last is not None
        if as_json:
            emit(_document(device, session, "".join(pieces), last))
            return
        sys.stdout.write("\n")
        note(
            f"{last.tokens} tokens, {_rate(last.tokens, last.seconds):.1f} a second; prompt of "
            f"{last.prompt_tokens}, {_rate(last.prompt_tokens, last.prompt_seconds):.1f} a second"
            + (", emulated" if device.emulated else "")
        )
        if last.finish == "context":
            note(
                "the context is full; --context N when compiling keeps more tokens, --max-tokens "
                "ends texts before"
            )


def _document(
    device: Board, session: InferenceSession, text: str, last: Generated
) -> dict[str, Any]:
    return {
        "schema": "edgekit.text/1",
        "board": device.name,
        "release": session.served.release,
        "threads": session.served.threads,
        "emulated": device.emulated,
        "text": text,
        "finish": last.finish,
        "prompt_tokens": last.prompt_tokens,
        "tokens": last.tokens,
        "prompt_seconds": last.prompt_seconds,
        "seconds": last.seconds,
    }


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0


def _shown(text: str) -> str:
    """Without control characters, which a terminal might obey."""
    import unicodedata

    return "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else "\ufffd" for c in text)
