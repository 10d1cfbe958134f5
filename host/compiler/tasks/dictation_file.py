"""How the text of an encoder and a decoder of speech begins and ends, and its tokenizer: from the
files next to them that Hugging Face's models have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.dictation import SCHEMA, STEP, DictationSpec, dictation_of
from edgekit.device.runtime.record import asdict
from edgekit.host.compiler.frontends.gguf.hub_tokenizer import tokenizer_values
from edgekit.host.compiler.sidecars import CONFIG, GENERATION, PIXELS, config_folder
from edgekit.host.compiler.tasks.hub import read_json
from edgekit.host.compiler.tasks.language import bpe_spec
from edgekit.host.compiler.tasks.log_mel import LogMel
from edgekit.host.errors import InputError

FILE = "dictation.json"  # in the release
_RATE, _WHISPER_SECONDS, _SECONDS = 16000, 30, 10
_POSITIONS = ("max_target_positions", "max_position_embeddings")
_MOST_TOKENS = 1 << 16


@dataclass(frozen=True)
class Dictated:
    """What these files say: `suppressed` tokens are never written, `most` is the number of tokens
    that the decoder takes; `language` names the only one, if it is fixed."""

    spec: DictationSpec
    rate: int
    suppressed: tuple[int, ...]
    most: int
    pixels: Mapping[str, Any]
    language: str = ""

    def file(self, cached: bool) -> bytes:
        """The file of a release, whose decoder may keep a cache of the text."""
        about = {**asdict(self.spec), "cached": cached}
        made = json.dumps({"schema": SCHEMA, **about}, ensure_ascii=False).encode()
        dictation_of(made, FILE)  # as the board will check it
        return made

    @property
    def features(self) -> LogMel:
        """Whisper's features of a window."""
        bands, fft, hop, seconds = (
            _count(self.pixels.get(name), usual)
            for name, usual in (
                ("feature_size", 80), ("n_fft", 400), ("hop_length", 160),
                ("chunk_length", _WHISPER_SECONDS),
            )
        )  # fmt: skip
        return LogMel(self.rate, seconds * self.rate, bands, fft, hop)

    @property
    def samples(self) -> int:
        """Of a window of a model that takes samples."""
        return _SECONDS * self.rate


def read_dictation(model: Path) -> Dictated:
    """Raises InputError if a file is missing, or says nothing of how texts begin and end."""
    folder = config_folder(model)
    config, own, pixels = (read_json(folder / name) for name in (CONFIG, GENERATION, PIXELS))
    about = {**config, **{name: value for name, value in own.items() if value is not None}}
    start, ends = _tokens(about.get("decoder_start_token_id")), _tokens(about.get("eos_token_id"))
    if len(start) != 1 or not ends:
        raise InputError(
            f"{folder}: expected {GENERATION} or {CONFIG} with decoder_start_token_id and "
            "eos_token_id, found none; fetch it, too"
        )
    languages, language, after = _prompt(about)
    values = tokenizer_values(folder, config)
    held, times = _tokens(about.get("begin_suppress_tokens")), _first_time(about, pixels)
    spec = DictationSpec(bpe_spec(values), ends, start, languages, after, held, times)
    most = next((about[n] for n in _POSITIONS if type(about.get(n)) is int), _MOST_TOKENS)
    rate = _count(pixels.get("sampling_rate"), _RATE)
    never = _tokens(about.get("suppress_tokens")) + ((times - 1,) if times else ())
    return Dictated(spec, rate, never, most, pixels, language)


def _first_time(about: Mapping[str, Any], pixels: Mapping[str, Any]) -> int:
    """The first of the tokens for times, which follow the one that says there are none; 0 if the
    vocabulary does not have them for a whole window."""
    plain, words = about.get("no_timestamps_token_id"), about.get("vocab_size")
    seconds = _count(pixels.get("chunk_length"), _WHISPER_SECONDS)
    if type(plain) is not int or type(words) is not int:
        return 0
    return plain + 1 if 0 < plain + 1 <= words - 1 - round(seconds / STEP) else 0


def _prompt(about: Mapping[str, Any]) -> tuple[tuple[int, ...], str, tuple[int, ...]]:
    """The tokens of languages among which the model chooses, the one that is fixed, if any, and
    the tokens behind it."""
    known, tasks = (_numbers(about.get(name)) for name in ("lang_to_id", "task_to_id"))
    forced = about.get("forced_decoder_ids")
    pairs = [p for p in forced if isinstance(p, list)] if isinstance(forced, list) else []
    by_place = {p[0]: p[1] for p in pairs if [*map(type, p)] == [int, int]}
    stated = about.get("language")
    names = [n for n in known if stated in (n, n.strip("<|>"))]
    names += [n for n in known if not names and known[n] == by_place.get(1)]
    if isinstance(stated, str) and known and not names:
        raise InputError(
            f"{GENERATION}: language: expected one of {', '.join(n.strip('<|>') for n in known)}, "
            f"found {stated!r:.40}"
        )
    languages = (known[names[0]],) if names else tuple(known.values())
    task = tasks.get(str(about.get("task") or "transcribe"), by_place.get(2))
    last = about.get("no_timestamps_token_id")
    after = tuple(each for each in (task if known else None, last) if type(each) is int)
    return languages, names[0].strip("<|>") if names else "", after


def _numbers(given: object) -> dict[str, int]:
    found = given.items() if isinstance(given, dict) else ()
    return {str(name): number for name, number in found if type(number) is int}


def _tokens(given: object) -> tuple[int, ...]:
    found = given if isinstance(given, list) else [given]
    return tuple(each for each in found if type(each) is int and each >= 0)


def _count(given: object, usual: int) -> int:
    return given if type(given) is int and 0 < given < 1 << 20 else usual
