"""Words heard by models that take features of sound: microWakeWord's, and TensorFlow Lite Micro's
micro_speech. The features are those of the microphone template."""

from __future__ import annotations

import importlib.util
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.device.runtime.agent.listening import Gate, Heard, is_word
from edgekit.host.compiler.inputs.real import as_input, as_real
from edgekit.host.compiler.tasks.hub import read_json
from edgekit.host.compiler.tasks.sounds import (
    CHANNELS,
    MICRO_SPEECH,
    MICRO_WAKE_WORD,
    features_of,
)
from edgekit.host.compiler.toolchain.zig import kernels_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgekit.device.runtime.agent.specs import TensorSpec

RATE = 16000
_FRAME = 480  # samples that a row is computed of
# The classes of micro_speech.
_LABELS = ("silence", "unknown", "yes", "no")


@dataclass(frozen=True)
class WakeWord:
    """A model that takes `rows` of features, each `step` samples after the last one, and runs
    again after `hop` rows. A class is heard where the mean of the last `means` scores is `on`."""

    sound: TensorSpec
    scores: TensorSpec
    rows: int
    step: int
    hop: int
    labels: tuple[str, ...]
    means: int
    on: float
    silent: int  # scores of zero before the first one

    @property
    def classes(self) -> int:
        return int(np.prod(self.scores.shape))

    def hear(
        self, samples: NDArray[np.float64], run: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> list[Heard]:
        """What is heard in samples of -1 to 1 at RATE."""
        gates = [Gate(0, self.on, self.on) for _ in range(self.classes)]
        last = deque([np.zeros(self.classes)] * self.silent, self.means)
        heard: list[Heard] = []
        for end, window in self._windows(samples):
            outputs = run({self.sound.name: as_input(window, self.sound).reshape(self.sound.shape)})
            last.append(as_real(outputs[self.scores.name], self.scores).reshape(-1))
            for number, gate in enumerate(gates):
                start = max(0.0, end - self.rows * self.step / RATE)
                score = float(np.mean([each[number] for each in last]))
                heard += self._made(number, gate.take(score, start, end))
        for number, gate in enumerate(gates):
            heard += self._made(number, gate.finish())
        return heard

    def _windows(self, samples: NDArray[np.float64]) -> Iterator[tuple[float, NDArray[np.float64]]]:
        """The end in seconds and the rows of each run; the last ones are filled with silence."""
        front = _front_end(self.step)
        least = _FRAME + (self.rows - 1) * self.step
        padded = np.zeros(max(len(samples), least))
        padded[: len(samples)] = samples
        data = np.clip(np.rint(padded * 32768), -32768, 32767).astype("<i2").tobytes()
        rows = np.array(front.of(data))
        for first in range(0, len(rows) - self.rows + 1, self.hop):
            last = first + self.rows - 1
            yield (last * self.step + _FRAME) / RATE, rows[first : first + self.rows]

    def _made(self, number: int, event: tuple[float, float, float] | None) -> list[Heard]:
        label = self.labels[number] if number < len(self.labels) else ""
        return [Heard(label, *event, number)] if event and is_word(label) else []


def wake_word(
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    stateful: bool,
    labels: Sequence[str],
) -> WakeWord | None:
    """The model of these inputs and outputs, if it is one; `labels` of the user come first."""
    if len(inputs) != 1 or len(outputs) != 1:
        return None
    (sound,), (scores,) = inputs, outputs
    if sound.scale is None or scores.scale is None:
        return None
    count = int(np.prod(scores.shape))
    family, rows = features_of(sound.shape, sound.dtype, count, stateful), sound.shape[1]
    # microWakeWord: 10 ms a row; the mean of five scores, of which 0.85 is a word.
    if family == MICRO_WAKE_WORD:
        known = tuple(labels) or ("wake word",)
        return WakeWord(sound, scores, rows, RATE // 100, rows, known, 5, 0.85, 5)
    if family == MICRO_SPEECH:
        known, rows = tuple(labels) or _LABELS, int(np.prod(sound.shape)) // CHANNELS
        return WakeWord(sound, scores, rows, RATE // 50, rows // 8, known, 3, 0.5, 0)
    return None


def stated_word(model: Path | None) -> tuple[str, ...]:
    """The word that the .json file next to one of microWakeWord's models says; empty without one.
    The file names its model."""
    about = read_json(model.with_suffix(".json")) if model is not None else {}
    word = about.get("wake_word")
    named = model is not None and (about.get("type"), about.get("model")) == ("micro", model.name)
    return (word,) if named and isinstance(word, str) and word.isprintable() else ()


def _front_end(step: int) -> Any:
    """New features of the template, with a row every `step` samples."""
    path = kernels_folder().parent / "templates/microphone/features.py"
    spec = importlib.util.spec_from_file_location("microphone_features", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Features(step)
