"""Sound through a model in windows, and what is heard in it: words, or where somebody speaks."""

from __future__ import annotations

from array import array
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.task import LAST, VAD, TaskSpec
from edgekit.device.runtime.dtypes import count

Run = Callable[[Dict[str, Any]], Mapping[str, Any]]

ON, OFF = 0.5, 0.35  # scores at which something begins, and ends
_OVERLAP = 4  # a word is looked for in windows that begin after a quarter of the last one
_CONTEXT = {576: 64, 288: 32}  # samples of the last window that Silero's models see again
_GAP, _LEAST, _MARGIN = 0.1, 0.25, 0.03  # seconds: of silence, of speech, around it
_TYPES = {"f32": "f", "s8": "b", "u8": "B", "s16": "h", "s32": "i", "s64": "q"}
_RANGES = {"s8": (-128, 127), "u8": (0, 255), "s16": (-32768, 32767)}
# Classes that are no words.
_NOTHING = ("silence", "unknown", "background", "background noise", "noise", "other", "negative")


class Heard(NamedTuple):
    """A word, or speech, from `start` to `end` in seconds; `score` is the highest of its windows,
    and `number` that of its class, whose `label` is empty if unknown."""

    label: str
    score: float
    start: float
    end: float
    number: int

    @property
    def name(self) -> str:
        """The label, or the number of the class."""
        return self.label or f"class {self.number}"


class Gate:
    """Follows the score of a class: it begins at `on`, and ends after `gap` seconds below `off`."""

    def __init__(self, gap: float, on: float = ON, off: float = OFF) -> None:
        self._gap, self._on, self._off = gap, on, off
        self._start: Optional[float] = None
        self._end = self._best = 0.0

    def take(self, score: float, start: float, end: float) -> Optional[tuple[float, float, float]]:
        """Score, start and end of what ended with this window, if something did."""
        if score >= (self._on if self._start is None else self._off):
            if self._start is None:
                self._start, self._best = start, 0.0
            self._best, self._end = max(self._best, score), end
            return None
        over = self._start is not None and end - self._end >= self._gap
        return self.finish() if over else None

    @property
    def is_on(self) -> bool:
        return self._start is not None

    def finish(self) -> Optional[tuple[float, float, float]]:
        """What has not ended yet."""
        if self._start is None:
            return None
        made = self._best, self._start, self._end
        self._start = None
        return made


class Listener:
    """Feeds sound to a model of a task keyword or vad; `run` computes outputs from inputs by name.

    Other inputs are states, which become the outputs that are named alike, and an integer, which
    becomes the sample rate.
    """

    def __init__(
        self,
        task: TaskSpec,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        run: Run,
        stateful: bool = False,
    ) -> None:
        self._task, self._run = task, run
        self._sound = next(spec for spec in inputs if spec.name == task.input)
        self._carried = states_of(
            [spec for spec in inputs if spec.name != task.input],
            [spec for spec in outputs if spec.name != task.output],
        )
        self._given: Dict[str, Any] = {}
        for spec in inputs:
            if spec.name != task.input:
                value = 0 if spec.name in self._carried else task.rate
                self._given[spec.name] = array(_TYPES[spec.dtype], [value]) * count(spec.shape)
        self._window = count(self._sound.shape)
        context = _CONTEXT.get(self._window, 0) if task.kind == VAD else 0
        overlapping = task.kind != VAD and not stateful and not self._carried
        self._step = self._window // _OVERLAP if overlapping else self._window - context
        self._samples = array("f", bytes(4 * context))
        ends = task.fit == LAST
        # What the last window has before these samples: as many as are in a window.
        self._before = array("f", bytes(4 * self._window)) if ends else array("f")
        self._first = -context  # the place of the first of these samples in the sound
        self._heard_to = 0  # the end of the last window
        self._gates: Dict[int, Gate] = {}
        self._last: List[float] = []

    def feed(self, samples: Iterable[float]) -> List[Heard]:
        """What ended in these samples, which continue the last ones: -1 to 1, of one channel, at
        the task's rate."""
        self._samples.extend(samples)
        found: List[Heard] = []
        while len(self._samples) >= self._window:
            found += self._hear(self._samples[: self._window])
            if self._before:
                self._before = (self._before + self._samples[: self._step])[-self._window :]
            del self._samples[: self._step]
            self._first += self._step
        return found

    def finish(self) -> List[Heard]:
        """What has not ended yet; the last window is filled with silence, or, for LAST, with what
        came before."""
        found = []
        if self._first + len(self._samples) > self._heard_to:
            rest = self._window - len(self._samples)
            if self._before:
                self._first -= rest
                found = self._hear(self._before[-rest:] + self._samples)
            else:
                found = self._hear(self._samples + array("f", bytes(4 * rest)))
        for number in sorted(self._gates):
            found += self._made(number, self._gates[number].finish())
        return found

    @property
    def now(self) -> List[int]:
        """The numbers of the classes that are heard right now: their events follow when they
        end."""
        return sorted(number for number, gate in self._gates.items() if gate.is_on)

    def _hear(self, window: "array[float]") -> List[Heard]:
        outputs = self._run({**self._given, self._task.input: _codes(window, self._sound)})
        for name, later in self._carried.items():
            self._given[name] = outputs[later]
        scores = _values(outputs[self._task.output])
        start = self._heard_to if self._task.kind == VAD else self._first
        end = self._heard_to = self._first + self._window
        if self._task.kind == VAD:
            return self._spoken(scores, start, end)
        # A word is in several windows: their mean is surer than each.
        means = [(a + b) / 2 for a, b in zip(scores, self._last)] if self._overlaps else scores
        self._last = scores
        found = []
        for number, score in enumerate(means or scores):
            if len(scores) == 1 or is_word(self._label(number)):
                found += self._follow(number, score, start, end)
        return found

    def _spoken(self, scores: Sequence[float], start: int, end: int) -> List[Heard]:
        """What ended in these equally long parts of the sound."""
        edges = [start + (end - start) * i / len(scores) for i in range(len(scores) + 1)]
        parts = zip(scores, edges, edges[1:])
        return [heard for part in parts for heard in self._follow(0, *part)]

    def _follow(self, number: int, score: float, start: float, end: float) -> List[Heard]:
        gate = self._gates.setdefault(number, Gate(_GAP if self._task.kind == VAD else 0))
        rate = self._task.rate
        return self._made(number, gate.take(score, start / rate, end / rate))

    @property
    def _overlaps(self) -> bool:
        is_word = self._task.kind != VAD and self._task.fit != LAST
        return is_word and self._step < self._window and bool(self._last)

    def _made(self, number: int, event: Optional[tuple[float, float, float]]) -> List[Heard]:
        if event is None:
            return []
        score, start, end = event
        if self._task.kind == VAD:
            if end - start < _LEAST:
                return []
            start, end = max(0.0, start - _MARGIN), end + _MARGIN
        return [Heard(self._label(number), score, max(0.0, start), end, number)]

    def _label(self, number: int) -> str:
        labels = self._task.labels
        return labels[number] if number < len(labels) else ""


def is_word(label: str) -> bool:
    """Whether a label is not one for silence and the like."""
    return label.strip("_ ").replace("_", " ").lower() not in _NOTHING


def states_of(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Dict[str, str]:
    """The outputs that become inputs of the next window: `stateN` becomes `state`, `hn` `h`. Where
    names do not tell, those of equal shapes are in the same order."""
    found: Dict[str, str] = {}
    for by_name in (True, False):
        for spec in inputs:
            for end in outputs:
                fits = (end.shape, end.dtype) == (spec.shape, spec.dtype)
                named = end.name.lower() in (spec.name.lower() + "n", spec.name.lower() + "_out")
                free = spec.name not in found and end.name not in found.values()
                if fits and free and (named or not by_name):
                    found[spec.name] = end.name
    return found


def _codes(samples: "array[float]", spec: TensorSpec) -> Any:
    """The samples as values of the input."""
    kind = _TYPES[spec.dtype]
    if kind == "f":
        return samples
    low, high = _RANGES[spec.dtype]
    scale, zero = spec.scale or 1.0 / (high + 1), spec.zero_point or 0
    return array(kind, (max(low, min(round(v / scale) + zero, high)) for v in samples))


def _values(tensor: Any) -> List[float]:
    """The scores as a flat list."""
    flat: List[float] = array("f", memoryview(tensor).cast("B").tobytes()).tolist()
    return flat
