"""Implements `edgekit run` on files: outputs and classes over one session."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from edgekit.device.runtime.agent.manifest import Variant
from edgekit.device.runtime.agent.pages import read_page
from edgekit.device.runtime.agent.rotated import upright
from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.subtitles import srt
from edgekit.device.runtime.agent.task import (
    BOXES,
    CLASSIFY,
    EMBED,
    KEYWORD,
    OCR,
    POSE,
    SPEAK,
    STRETCH,
    TRANSCRIBE,
    TaskSpec,
)
from edgekit.device.runtime.agent.variants import variant_for
from edgekit.host.cli.boxes import FORMS, box_csv, coco_json
from edgekit.host.cli.classes import Class, best, class_output
from edgekit.host.cli.each_file import check_form, each_file
from edgekit.host.cli.evaluation import Evaluation, ModelClasses, Truth
from edgekit.host.cli.findings import FileResult, PlacedPicture, with_findings
from edgekit.host.cli.hearing import embed_sound, hear, time_texts, transcript_of
from edgekit.host.cli.output import note
from edgekit.host.cli.reading import LineReader, crop_of
from edgekit.host.cli.results import SRT, STDOUT, WAV, Outputs, Take, name_of, results
from edgekit.host.cli.speaking import check_spoken, read_phonemes, speak
from edgekit.host.cli.wake_words import wake_word
from edgekit.host.common.files import atomic_write
from edgekit.host.compiler.inputs import (
    DRAWN,
    InputOptions,
    ModelNotes,
    frames_of,
    is_array,
    is_picture,
    is_sound,
    is_text,
    placed_picture,
    read_inputs,
    read_sound,
    read_texts,
    upright_picture,
)
from edgekit.host.compiler.tasks import PlannedVariant
from edgekit.host.deploy.release import InferenceSession, variants_of_signature
from edgekit.host.errors import InputError


class HasOutputs(Protocol):
    """A variant in a manifest, or of a session."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...


_TOP = 5  # classes that are shown if nothing is asked for


@dataclass(frozen=True)
class RunJob:
    """`top`, `labels` and `signature` are from the user, `notes` from the model's file. With a
    `truth`, which has the same files, results are compared instead of shown. A `recognizer` reads
    what is in boxes. `timestamps`: transcripts have times. `quiet`: guesses are not shown.
    `left_out`: what is wrong with files that `run` could not take."""

    files: Sequence[Path]
    output: str | None
    top: int | None
    labels: Sequence[str]
    notes: ModelNotes
    reset_each: bool
    options: InputOptions
    signature: str = ""
    truth: Truth | None = None
    recognizer: LineReader | None = None
    timestamps: bool = False
    quiet: bool = False
    left_out: list[InputError] = field(default_factory=list)

    def check(self, every: Sequence[Variant], task: TaskSpec | None) -> None:
        """Converts all inputs as for the model, as a check; raises InputError."""
        variants = variants_of_signature(every, self.signature, task)
        task = _task_for(task, variants[0])
        self._find_class_output(variants[0].outputs, task)
        self._check_task(task, variants[0], bool(variants[0].memory.state_bytes))
        self._check_output(task)

        def check_one(file: Path) -> None:
            if _speaks(task) and is_text(file):
                read_phonemes(file)
                return
            hears = self._hears(task, file, variants[0], bool(variants[0].memory.state_bytes))
            check_form(task, file)
            if hears:
                read_sound(file, 1)
            elif is_text(file):
                read_texts(file, task)
            else:
                read_inputs(file, variants, self._fitted_to(task))

        self._each(self._first_files, check_one)

    @property
    def _first_files(self) -> Sequence[Path]:
        """All files, or the first of those with which results are compared."""
        return self.files[: 1 if self.truth else None]

    def _each(self, files: Sequence[Path], take: Callable[[Path], object]) -> list[InputError]:
        return each_file(files, take, strict=self.truth is not None or not self.shown)

    @property
    def shown(self) -> bool:
        """Whether some files are no arrays, which only a model with a task may take."""
        return not all(map(is_array, self.files))

    def check_early(self, known: PlannedVariant) -> None:
        """Raises InputError for pictures, sounds and texts that cannot be read, or that do not fit
        what a model's file says. `check` follows when the model is compiled."""
        task = None if self.signature else known.task
        if task is not None:
            self._check_task(task, known, stateful=False)
        if not self.signature:
            self._check_output(task)

        def check_one(file: Path) -> None:
            check_form(task, file)
            if is_sound(file):
                read_sound(file, 1)
            elif is_text(file) and not self.signature:
                read_phonemes(file) if _speaks(task) else read_texts(file, task)
            elif is_picture(file):
                if len(known.inputs) == 1 and not self.signature:
                    read_inputs(file, (known,), self._fitted_to(task))
                else:
                    upright_picture(file)

        self._each(self._first_files, check_one)

    def run(self, session: InferenceSession) -> list[FileResult]:
        """Runs all files in sequence; a stateful model keeps its state between them."""
        variants = session.served.of(self.signature)
        task = _task_for(session.served.task, variants[0])
        self._find_class_output(variants[0].outputs, task)
        self._check_task(task, variants[0], variants[0].stateful)
        self._check_output(task)
        if task and _speaks(task) and all(map(is_text, self.files)):
            return [speak(file, session, task, self.output) for file in self.files]
        options = self._fitted_to(task)
        variant = variants[0]
        if not any(self._hears(task, file, variant, variant.stateful) for file in self.files):
            self._tell_of_guesses(variant.inputs, options)
        found: list[FileResult] = []
        listed = self._writes_boxes(task) or self._writes_subtitles
        with results(None if listed else self.output, self.files) as take:

            def run_one(file: Path) -> None:
                if self.reset_each and found:
                    session.reset()
                found.extend(self._results(file, session, task, take))

            self.left_out.extend(self._each(self.files, run_one))
        if task and self._writes_boxes(task):
            self._write_boxes(found, task)
        if self._writes_subtitles:
            atomic_write(Path(self.output or ""), srt(found[0].subtitles or ()).encode())
        return found

    def _results(
        self, file: Path, session: InferenceSession, task: TaskSpec | None, take: Take
    ) -> list[FileResult]:
        """What a file gives: a result, or one for each line of a text."""
        variants, options = session.served.of(self.signature), self._fitted_to(task)
        if self._hears(task, file, variants[0], variants[0].stateful):
            return [self._heard_in(file, session, task)]
        if is_text(file):
            texts = self._of_texts(file, session, task)
            take(file, [made for _, made in texts])
            return [each for each, _ in texts]
        if task and task.kind == OCR and is_picture(file) and self.output is None:
            return [self._line_in(file, session)]
        outputs, times, classes = [], [], []
        for inputs in read_inputs(file, variants, options, variants[0].stateful):
            made, timings = session.run(inputs, self.signature)
            outputs.append(made)
            times.append(timings.latency_ms)
            classes += self._classes(made, variant_for(variants, inputs).outputs, task)
        take(file, outputs)
        each = FileResult(file, tuple(times), tuple(classes))
        if task and task.kind != CLASSIFY and not task.hears and is_picture(file):
            each = self._with_findings(each, outputs[0], session, task)
        return [each]

    def evaluation(
        self, found: Sequence[FileResult], session: InferenceSession
    ) -> Evaluation | None:
        """How good the results are, if that was asked for."""
        (variant, *_), task = session.served.of(self.signature), session.served.task
        if self.truth is None:
            return None
        return self.truth.score(found, self._model_classes(task, variant, variant.stateful))

    def _check_output(self, task: TaskSpec | None) -> None:
        """Raises InputError for a sound as output of a model that does not speak, and for other
        outputs of what one says."""
        if _speaks(task) and all(map(is_text, self.files)):
            check_spoken(self.output)
        elif (self.timestamps or self._writes_subtitles) and not (
            _transcribes(task) and (len(self.files) == 1 or not self._writes_subtitles)
        ):
            raise InputError(
                f"--timestamps, or a {SRT}: expected one sound for a model that transcribes "
                "speech, found others; leave it out"
            )
        elif Path(self.output or "").suffix.lower() == WAV:
            raise InputError(
                f"{self.output}: expected a model with --task {SPEAK} and phonemes for a {WAV} as "
                f"output, found {task.kind if task else 'no known task'}; name a .npz, .json or "
                ".csv"
            )

    def _check_task(self, task: TaskSpec | None, variant: HasOutputs, stateful: bool) -> None:
        """Raises InputError if the user's labels, or the ground truth, do not fit the model."""
        if task is not None and task.kind == CLASSIFY and self.labels:
            class_output(variant.outputs, self.labels, (), task)
        elif task and self.labels and len(self.labels) != len(task.labels or self.labels):
            raise InputError(
                f"--labels: expected {len(task.labels)} labels, as the model has, found "
                f"{len(self.labels)}; give one for each class"
            )
        if self.recognizer is not None and (task is None or task.kind not in BOXES):
            raise InputError(
                f"--recognizer: expected it with a model that finds boxes, found "
                f"{task.kind if task else 'no known task'}; see --task"
            )
        if self.truth is not None:
            self.truth.check(task, self._model_classes(task, variant, stateful))

    def _model_classes(
        self, task: TaskSpec | None, variant: HasOutputs, stateful: bool
    ) -> ModelClasses:
        if task is None:
            word = wake_word(variant.inputs, variant.outputs, stateful, self.labels)
            return ModelClasses(word.labels, word.classes, KEYWORD) if word else ModelClasses((), 0)
        count = next(math.prod(s.shape) for s in variant.outputs if s.name == task.output)
        reads = self.recognizer is not None
        return ModelClasses(self.labels or task.labels, count, task.kind, reads)

    def _fitted_to(self, task: TaskSpec | None) -> InputOptions:
        return self.options.for_task(task) if task else self.options

    def _hears(
        self, task: TaskSpec | None, file: Path, variant: HasOutputs, stateful: bool
    ) -> bool:
        """Whether what is heard is shown, and not the outputs of each window."""
        if self._writes_subtitles and _transcribes(task):
            return is_sound(file)
        if not is_sound(file) or self.output is not None or self.top is not None:
            return False
        if task is None:
            return wake_word(variant.inputs, variant.outputs, stateful, ()) is not None
        return task.hears

    def _of_texts(
        self, file: Path, session: InferenceSession, task: TaskSpec | None
    ) -> list[tuple[FileResult, Outputs]]:
        """The result and the outputs for each line of a file."""
        found = []
        for line in read_texts(file, task):
            inputs = session.tokens(line)
            made, timings = session.run(inputs, self.signature)
            specs = variant_for(session.served.of(self.signature), inputs).outputs
            each = FileResult(
                file, (timings.latency_ms,), tuple(self._classes(made, specs, task)), text=line
            )
            if task and task.kind == EMBED:
                each = replace(each, vector=tuple(made[task.output].ravel().tolist()))
            found.append((each, made))
        return found

    def _heard_in(self, file: Path, session: InferenceSession, task: TaskSpec | None) -> FileResult:
        variant, rate = session.served.of(self.signature)[0], self.options.sample_rate
        if task and _transcribes(task) and (self.timestamps or self._writes_subtitles):
            said, times = time_texts(file, session, variant, task, rate)
            return FileResult(file, tuple(times), (), subtitles=tuple(said))
        if task and _transcribes(task):
            line, times = transcript_of(file, session, variant, task, rate)
            return FileResult(file, tuple(times), (), line=line)
        if task and task.kind == EMBED:
            vector, times = embed_sound(file, session, variant, task, rate)
            return FileResult(file, tuple(times), (), vector=tuple(vector))
        heard, times = hear(file, session, variant, task, rate, self.labels)
        return FileResult(file, tuple(times), (), heard=tuple(heard))

    @property
    def _draws(self) -> bool:
        return self.output is None and self.truth is None

    @property
    def _writes_subtitles(self) -> bool:
        return (self.output or "").lower().endswith(SRT)

    def _writes_boxes(self, task: TaskSpec | None) -> bool:
        """Whether the output file lists boxes instead of all values."""
        wanted = self.output is not None and Path(self.output).suffix.lower() in FORMS
        return wanted and task is not None and task.kind in (*BOXES, POSE)

    def _classes(
        self, made: Outputs, specs: Sequence[TensorSpec], task: TaskSpec | None
    ) -> list[list[Class]]:
        """The best classes of a run, if they were asked for or are what the model is for."""
        if self.top:
            spec, labels = self._find_class_output(specs, task)
            return [best(made, spec, labels, self.top)]
        if task is None or task.kind != CLASSIFY or self.output is not None:
            return []
        spec = next(each for each in specs if each.name == task.output)
        return [best(made, spec, self.labels or task.labels, _TOP)]

    def _with_findings(
        self, found: FileResult, outputs: Outputs, session: InferenceSession, task: TaskSpec
    ) -> FileResult:
        """The result with what the task finds in a picture, drawn if no output is asked for."""
        if task.kind == EMBED:
            return replace(found, vector=tuple(outputs[task.output].ravel().tolist()))
        spec = session.served.of(self.signature)[0].inputs[0]
        placed = placed_picture(found.file, spec, self._fitted_to(task))
        target = Path(f"{name_of(found.file, self.files)}{DRAWN}") if self._draws else None
        page = crop_of(placed[0]) if self.recognizer is not None else None
        made = with_findings(found, outputs, PlacedPicture(*placed), task, self.labels, target)
        if page is None or self.recognizer is None:
            return made
        read = partial(self.recognizer.read, name=str(found.file))
        boxes = made.rotated or [upright(pose.box) for pose in made.poses or ()]
        return replace(made, lines=tuple(read_page(page, boxes, read)))

    def _line_in(self, file: Path, session: InferenceSession) -> FileResult:
        reader = LineReader(session, self.options)
        line = reader.read(crop_of(upright_picture(file)), str(file))
        return FileResult(file, tuple(reader.latencies_ms), (), line=line)

    def _write_boxes(self, found: Sequence[FileResult], task: TaskSpec) -> None:
        listed = [(each.file, each.poses or ()) for each in found]
        is_json = self.output is not None and self.output.lower().endswith(".json")
        outlines = {each.file: each.outlines for each in found if each.outlines}
        labels = self.labels or task.labels
        text = coco_json(listed, labels, outlines) if is_json else box_csv(listed)
        atomic_write(Path(self.output or STDOUT), text.encode())

    def _find_class_output(
        self, specs: Sequence[TensorSpec], task: TaskSpec | None
    ) -> tuple[TensorSpec, Sequence[str]]:
        """The output with class scores and its labels, if classes were requested."""
        if self.top is None:
            return specs[0], ()
        return class_output(specs, self.labels, self.notes.labels, task)

    def _tell_of_guesses(self, specs: Sequence[TensorSpec], options: InputOptions) -> None:
        """Says what is assumed of pictures and sounds because the model states nothing."""
        if self.quiet:
            return
        for file in filter(is_picture, self.files):
            if (count := frames_of(file)) > 1:
                note(f"{file}: only the first of {count} pictures is taken; make a video for all")
        floats = any(spec.dtype.startswith("f") for spec in specs)
        stated = options.scaling[1] or options.fit != STRETCH
        if floats and not stated and any(map(is_picture, self.files)):
            note("pixels are scaled to 0..1: the model states no range; see --mean and --scale")
        if options.rate is None and any(map(is_sound, self.files)):
            note("sound is taken as samples of any rate: the model states none; see --sample-rate")


def _transcribes(task: TaskSpec | None) -> bool:
    return task is not None and task.kind == TRANSCRIBE


def _speaks(task: TaskSpec | None) -> bool:
    return task is not None and task.kind == SPEAK


def _task_for(task: TaskSpec | None, variant: HasOutputs) -> TaskSpec | None:
    """The release's task if this variant has its output: other signatures may lack it."""
    known = task is not None and any(spec.name == task.output for spec in variant.outputs)
    return task if known else None
