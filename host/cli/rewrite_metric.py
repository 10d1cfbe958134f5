"""The metric of a model's task before and after `quantize` and `prune`, as `run --evaluate` has
it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.device.runtime.agent.task import BOXES, POSE
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.cli.evaluate import read_truth
from edgekit.host.cli.evaluate_named import COMPARISONS
from edgekit.host.cli.evaluation import Evaluation
from edgekit.host.cli.graph_session import graph_session
from edgekit.host.cli.progress import working
from edgekit.host.cli.run_job import RunJob
from edgekit.host.compiler.inputs import InputOptions, ModelNotes, input_files
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import Prepared, planned_of, with_task
from edgekit.host.compiler.transforms.quantize import (
    held_out_files,
    lists_class_numbers,
    with_notes,
)
from edgekit.host.errors import InputError

_METRICS = (*BOXES, POSE, *COMPARISONS)


@dataclass(frozen=True)
class Metric:
    """A figure of two models by the same number of `files` that are held out, None if there is
    nothing to find in them."""

    name: str
    before: float | None
    after: float | None
    files: int


@dataclass(frozen=True)
class TaskMetric:
    """The job that compares the results of a model's graph with the ground truth."""

    model: Path
    job: RunJob

    def compare(self, before: Graph, after: Graph) -> Metric:
        """Runs both graphs, of which `after` has the inputs and outputs of `before`. Raises
        InputError if its outputs are no longer those that the task expects."""
        with working(f"evaluating {self.model.name} before and after"):
            was = _evaluation(self.model, self.job, before)
            try:
                renamed = replace(after, output_names=before.output_names)
                now = _evaluation(self.model, replace(self.job, quiet=True), renamed)
            except (InputError, DeviceInputError) as error:
                raise InputError(
                    f"--evaluate: the written model gives no results: {error}"
                ) from None
        first, second = (None if math.isnan(each.value) else each.value for each in (was, now))
        return Metric(was.name, first, second, len(self.job.files))


def task_metric(
    model: Path, graph: Graph, samples: Path, labels: Path | None, options: InputOptions
) -> TaskMetric | None:
    """How to measure a model on held-out files of the folder `samples`, by the files and results in
    `labels`; None without labels or for class numbers, one for each sample (`read_labels`).

    Raises InputError, before any work, for labels that do not fit the samples or the model.
    """
    if labels is None or not labels.exists() or lists_class_numbers(labels):
        return None
    if not samples.is_dir():
        raise InputError(
            f"{labels}: expected a class number for each sample in {samples}, found other labels; "
            "for these give a folder of pictures or sounds as --samples"
        )
    truth = read_truth(labels, samples, "--samples")
    known = {*input_files(samples)}
    for file in truth.files:
        if file not in known:
            raise InputError(
                f"{labels}: expected files of --samples {samples}, found {file}, which is none of "
                "the samples; leave its line out"
            )
    made = _prepared(model, graph)
    if made.task is None or made.task.kind not in _METRICS:
        raise InputError(
            f"{labels}: expected a model whose task has a metric ({', '.join(_METRICS)}), found "
            f"{made.task.kind if made.task else 'no known task'}; leave out --evaluate"
        )
    right = truth.within(held_out_files(samples))
    notes, own = ModelNotes(), with_notes(model, options)
    job = RunJob([*right.files], None, None, (), notes, True, own, truth=right)
    job.check_early(planned_of(made))
    return TaskMetric(model, job)


def _evaluation(model: Path, job: RunJob, graph: Graph) -> Evaluation:
    session = graph_session(_prepared(model, graph))
    made = job.evaluation(job.run(session), session)
    assert made is not None
    return made


def _prepared(model: Path, graph: Graph) -> Prepared:
    return with_task(model, graph, CompileOptions(task="guess"))
