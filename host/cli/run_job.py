"""Implements `edgekit run` on files: outputs and classes over one session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.runtime.agent.manifest import Variant
from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.variants import variant_for
from edgekit.host.cli.classes import Class, best, class_output
from edgekit.host.cli.output import note
from edgekit.host.cli.results import results
from edgekit.host.compiler.inputs import InputOptions, ModelNotes, is_picture, read_inputs
from edgekit.host.deploy.release import Session, variants_of_signature


@dataclass(frozen=True)
class Found:
    """Result for a file; `classes` of each run if requested."""

    file: Path
    latencies_ms: tuple[float, ...]
    classes: tuple[list[Class], ...]


@dataclass(frozen=True)
class Job:
    """`top`, `labels` and `signature` are from the user, `notes` from the model's file."""

    files: Sequence[Path]
    output: str | None
    top: int | None
    labels: Sequence[str]
    notes: ModelNotes
    reset_each: bool
    options: InputOptions
    signature: str = ""

    def check(self, every: Sequence[Variant]) -> None:
        """Converts all inputs as for the model, as a check; raises InputError."""
        variants = variants_of_signature(every, self.signature)
        self._find_class_output(variants[0].outputs)
        for file in self.files:
            read_inputs(file, variants, self.options)

    def run(self, session: Session) -> list[Found]:
        """Runs all files in sequence; a stateful model keeps its state between them."""
        variants = session.served.of(self.signature)
        self._find_class_output(variants[0].outputs)
        self._tell_of_pixels(variants[0].inputs)
        found: list[Found] = []
        with results(self.output, self.files) as take:
            for file in self.files:
                if self.reset_each and found:
                    session.reset()
                outputs, times, classes = [], [], []
                for inputs in read_inputs(file, variants, self.options, variants[0].stateful):
                    made, timings = session.run(inputs, self.signature)
                    outputs.append(made)
                    times.append(timings.latency_ms)
                    if self.top:
                        spec, labels = self._find_class_output(
                            variant_for(variants, inputs).outputs
                        )
                        classes.append(best(made, spec, labels, self.top))
                take(file, outputs)
                found.append(Found(file, tuple(times), tuple(classes)))
        return found

    def _find_class_output(self, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, Sequence[str]]:
        """The output with class scores and its labels, if classes were requested."""
        if self.top is None:
            return specs[0], ()
        return class_output(specs, self.labels, self.notes.labels)

    def _tell_of_pixels(self, specs: Sequence[TensorSpec]) -> None:
        floats = any(spec.dtype.startswith("f") for spec in specs)
        if floats and not self.options.scaling[1] and any(map(is_picture, self.files)):
            note("pixels are scaled to 0..1: the model states no range; see --mean and --scale")
