"""Listens with any model for words: one with a task, or microWakeWord's, which take features."""

import array
import collections
import sys

import edgekit_runtime
import features

ON, WINDOW = 0.85, 5  # least mean of so many answers for a word
Task = collections.namedtuple("Task", "kind labels rate characters tokenizer")


def task_of(model):
    """The model's task; that of microWakeWord's, whose word has the model's name; None for
    others."""
    if model.task is not None or not takes_features(model):
        return model.task
    return Task("keyword", (model.name,), features.RATE, "", "")


def takes_features(model):
    """Whether it is one of microWakeWord's: rows of 40 bytes, one answer, and a state."""
    if len(model.inputs) != 1 or len(model.outputs) != 1 or not model.is_stateful:
        return False
    (spec,), (answer,) = model.inputs, model.outputs
    rows = len(spec.shape) == 3 and spec.shape[::2] == (1, features.CHANNELS)
    return rows and spec.dtype == "s8" and max(answer.shape, default=1) == 1


def listen(model):
    """What finds words in sound, as edgekit_runtime.listen."""
    return Words(model) if model.task is None else edgekit_runtime.listen(model)


class Ear:
    """A model with its recent input and outputs; averages the last `window` outputs."""

    def __init__(self, model, window):
        self.model = model
        (self.spec,), (self.answer,) = model.inputs, model.outputs
        self.features = features.Features()
        self.rows = []
        self.answers = collections.deque([0.0] * window, window)
        self.frames = 0

    def hear(self, data):
        """Yields the wake word's probability after each run of the model."""
        for row in self.features.of(data):
            self.frames += 1
            self.rows.append(row)
            if len(self.rows) == self.spec.shape[1]:
                outputs = self.model.run({self.spec.name: self.quantized()})
                (code,) = memoryview(outputs[self.answer.name]).cast("B")
                self.answers.append(code * self.answer.scale)
                self.rows = []
                yield sum(self.answers) / len(self.answers)

    def quantized(self):
        """Quantizes the rows for the model's input."""
        scale, zero = self.spec.scale, self.spec.zero_point
        values = (round(value / scale) + zero for row in self.rows for value in row)
        return array.array("b", (max(-128, min(value, 127)) for value in values))


class Words:
    """The wake word in samples, as edgekit_runtime.Listener."""

    def __init__(self, model):
        self.ear, self.label = Ear(model, WINDOW), model.name
        self.start = None

    def feed(self, samples):
        codes = array.array("h", (max(-32768, min(round(32768 * s), 32767)) for s in samples))
        if sys.byteorder == "big":
            codes.byteswap()
        found = []
        for score in self.ear.hear(codes.tobytes()):
            end = self.ear.frames / 100
            if score <= ON:
                found += self.finish()
                continue
            if self.start is None:
                self.start, self.best = max(0.0, end - self.ear.spec.shape[1] / 100), 0.0
            self.best, self.end = max(self.best, score), end
        return found

    def finish(self):
        if self.start is None:
            return []
        made = edgekit_runtime.Heard(self.label, self.best, self.start, self.end, 0)
        self.start = None
        return [made]

    @property
    def now(self):
        return [] if self.start is None else [0]
