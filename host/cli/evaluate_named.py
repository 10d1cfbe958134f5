"""Files with a text for each: the name of a class, a transcript, or where speech is."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.device.runtime.agent.listening import is_word
from edgekit.device.runtime.agent.task import BOXES, CLASSIFY, KEYWORD, OCR, TRANSCRIBE, VAD
from edgekit.host.cli.evaluation import (
    LIST_LABELS,
    Evaluation,
    ModelClasses,
    Result,
    none_of_files,
    plain,
)
from edgekit.host.compiler.tasks.hits import Hits, edits, overlap, words_of
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.task import TaskSpec

_TOP = 5


@dataclass(frozen=True)
class NamedTruth:
    """Files with their texts, in folders of classes or in the lines of `source`."""

    source: Path
    named: tuple[tuple[Path, str], ...]
    in_folders: bool = False

    @property
    def files(self) -> list[Path]:
        return [file for file, _ in self.named]

    def within(self, files: Collection[Path]) -> NamedTruth:
        named = tuple(each for each in self.named if each[0] in files)
        if not named:
            raise none_of_files(self.source, files)
        return replace(self, named=named)

    def check(self, task: TaskSpec | None, classes: ModelClasses) -> None:
        kind = self._kind(classes)
        if kind not in COMPARISONS:
            *others, last = COMPARISONS
            raise InputError(
                f"{self.source}: expected a model for {', '.join(others)} or {last}, for "
                f"--evaluate, found {task.kind if task else 'no known task'}; see run --task"
            )
        self._comparison(kind, classes).check()

    def score(self, found: Sequence[Result], classes: ModelClasses) -> Evaluation:
        return self._comparison(self._kind(classes), classes).score(found)

    def _kind(self, classes: ModelClasses) -> str:
        return OCR if classes.reads and classes.kind in BOXES else classes.kind

    def _comparison(self, kind: str, classes: ModelClasses) -> _Texts:
        texts = tuple(text for _, text in self.named)
        return COMPARISONS[kind](self.source, texts, self.in_folders, classes)


@dataclass(frozen=True)
class _Texts:
    """The texts of files, which results of a model of these classes are compared with."""

    source: Path
    texts: tuple[str, ...]
    in_folders: bool
    classes: ModelClasses

    def check(self) -> None:
        """Raises InputError if the texts do not fit the model."""

    def score(self, found: Sequence[Result]) -> Evaluation:
        raise NotImplementedError


@dataclass(frozen=True)
class _Classes(_Texts):
    """Names or numbers of classes."""

    def check(self) -> None:
        self._numbers()

    def score(self, found: Sequence[Result]) -> Evaluation:
        best, among, numbers = 0, 0, self._numbers()
        for result, name in zip(found, self.texts, strict=True):
            ranked = [each.index for each in result.classes[0]]
            best += ranked[0] == numbers[name]
            among += numbers[name] in ranked[:_TOP]
        share, wide = best / len(found), among / len(found)
        return Evaluation(
            "top-1",
            share,
            (f"top-1    {share:.2%} of {len(found)} pictures", f"top-5    {wide:.2%}"),
            {"pictures": len(found), "top1": share, "top5": wide},
        )

    def _numbers(self) -> dict[str, int]:
        """The class of each name: a label, or a number. Folders that have other names are the
        classes in alphabetical order, as PyTorch's ImageFolder has them."""
        labels, count = self.classes.labels, self.classes.count
        names = sorted(set(self.texts))
        known: dict[str, int] = {}
        for number, label in reversed([*enumerate(labels)]):
            # Some lists have several words for a class.
            known |= {plain(label.split(",")[0]): number, plain(label): number}
        known |= {str(n): n for n in range(count) if str(n) not in known}
        missing = [name for name in names if plain(name) not in known]
        if self.in_folders and len(missing) == len(names) == count:
            return {name: number for number, name in enumerate(names)}
        if missing:
            some = f"such as '{labels[0]}'" if labels else "which it has not"
            raise InputError(
                f"{self.source}: expected labels of the model, {some}, or numbers below {count}, "
                f"found '{missing[0]}'; {LIST_LABELS}"
            )
        return {name: known[plain(name)] for name in names}


@dataclass(frozen=True)
class _Words(_Classes):
    """The word that each sound has; labels for silence and the like are none, as any that the model
    has not."""

    def check(self) -> None:
        if not any(self._number(text) >= 0 for text in self.texts):
            self._numbers()

    def score(self, found: Sequence[Result]) -> Evaluation:
        hits = Hits()
        for result, text in zip(found, self.texts, strict=True):
            number = self._number(text)
            wanted = {number} - {-1}
            heard = {each.number for each in result.heard or ()}
            hits += Hits(len(wanted & heard), len(heard - wanted), len(wanted - heard))
        return _of_hits(hits, f"words in {len(found)} sounds", len(found))

    def _number(self, text: str) -> int:
        """The class of a word; -1 for none."""
        known = [plain(label) for label in self.classes.labels]
        if not is_word(text):
            return -1
        if plain(text) in known:
            return known.index(plain(text))
        return int(text) if text.isdecimal() and int(text) < self.classes.count else -1


@dataclass(frozen=True)
class _Speech(_Texts):
    """The start and end of speech in seconds; without one there is none."""

    def check(self) -> None:
        self._spans()

    def score(self, found: Sequence[Result]) -> Evaluation:
        hits = Hits()
        for result, spans in zip(found, self._spans(), strict=True):
            hits += overlap(spans, [(each.start, each.end) for each in result.heard or ()])
        return _of_hits(hits, f"10 ms of speech in {len(found)} sounds", len(found))

    def _spans(self) -> list[list[tuple[float, float]]]:
        return [self._parsed(text) for text in self.texts]

    def _parsed(self, text: str) -> list[tuple[float, float]]:
        if not is_word(text):
            return []
        try:
            times = [float(each) for each in text.replace(",", " ").split()]
        except ValueError:
            times = []
        spans = [*zip(times[::2], times[1::2], strict=False)]
        if len(times) % 2 or not spans or not all(0 <= a < b < math.inf for a, b in spans):
            raise InputError(
                f"{self.source}: expected start and end of speech in seconds, such as 0.5,1.75, or "
                f"silence, found '{text:.60}'"
            )
        return spans


@dataclass(frozen=True)
class _Transcripts(_Texts):
    """The text that is spoken or written."""

    def score(self, found: Sequence[Result]) -> Evaluation:
        wrong, words, false, characters = 0, 0, 0, 0
        for result, right in zip(found, self.texts, strict=True):
            text = result.line.text if result.line else " ".join(t.text for t in result.lines or ())
            wanted, right = words_of(right), " ".join(right.split())
            wrong += edits(wanted, words_of(text))
            words += len(wanted)
            false += edits(right, text)
            characters += len(right)
        shares = wrong / max(words, 1), false / max(characters, 1)
        return Evaluation(
            "WER",
            shares[0],
            (
                f"WER      {shares[0]:.2%} of {words} words in {len(found)} files, without case",
                f"CER      {shares[1]:.2%} of {characters} characters",
            ),
            {"files": len(found), "words": words, "wer": shares[0], "cer": shares[1]},
        )


COMPARISONS: Mapping[str, type[_Texts]] = {
    CLASSIFY: _Classes,
    KEYWORD: _Words,
    VAD: _Speech,
    OCR: _Transcripts,
    TRANSCRIBE: _Transcripts,
}


def _of_hits(hits: Hits, what: str, files: int) -> Evaluation:
    figures = {"precision": hits.precision, "recall": hits.recall, "f1": hits.f1}
    return Evaluation(
        "F1",
        hits.f1,
        (
            f"F1       {hits.f1:.4f} of {hits.right + hits.missed} {what}",
            f"precision {hits.precision:.4f}",
            f"recall   {hits.recall:.4f}",
        ),
        {"sounds": files, **figures},
    )
