"""Finds the top classes of an output, with their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgekit.device.runtime.agent.specs import TensorSpec
    from edgekit.device.runtime.agent.task import TaskSpec

_MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class Class:
    """One of the top classes; `label` is empty if unknown."""

    index: int
    label: str
    score: float


def read_labels(path: Path) -> tuple[str, ...]:
    """Reads one label per line of a text file; InputError if it is not one."""
    from edgekit.host.compiler.inputs.metadata import label_lines

    if not path.is_file():
        raise InputError(f"{path}: expected a file with a label on each line, found none")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError
        return label_lines(path.read_bytes())
    except ValueError:
        raise InputError(
            f"{path}: expected a text file of at most {_MOST_BYTES} bytes with a label on each "
            "line, found something else"
        ) from None


def class_output(
    specs: Sequence[TensorSpec],
    given: Sequence[str],
    own: Sequence[Sequence[str]],
    task: TaskSpec | None = None,
) -> tuple[TensorSpec, Sequence[str]]:
    """The output that holds class scores, and its labels.

    `given` are the user's labels, `own` the labels in the model for each output; a classifier's
    `task` names both. InputError if the output is ambiguous, or if the number of labels does not
    match.
    """
    from edgekit.device.runtime.agent.task import CLASSIFY
    from edgekit.host.compiler.tasks import class_count

    if task is not None and task.kind == CLASSIFY:
        specs, own = [spec for spec in specs if spec.name == task.output], (task.labels,)
    scores = [i for i, spec in enumerate(specs) if class_count(spec.shape) > 1]
    if len(scores) > 1 and given:
        scores = [i for i in scores if class_count(specs[i].shape) == len(given)] or scores
    if len(scores) > 1:
        scores = [i for i in scores if i < len(own) and own[i]] or scores
    if len(scores) != 1:
        found = ", ".join(f"'{spec.name}' {list(spec.shape)}" for spec in specs)
        raise InputError(f"--top: expected one output with a score for each class, found {found}")
    spec = specs[scores[0]]
    if given and len(given) != class_count(spec.shape):
        raise InputError(
            f"--labels: expected {class_count(spec.shape)} labels for output '{spec.name}', "
            f"found {len(given)}"
        )
    mine = own[scores[0]] if scores[0] < len(own) else ()
    return spec, given or (mine if len(mine) == class_count(spec.shape) else ())


def best(
    outputs: Mapping[str, NDArray[Any]], spec: TensorSpec, labels: Sequence[str], top: int
) -> list[Class]:
    """The `top` highest scores as real values, in descending order."""
    import numpy as np

    from edgekit.host.compiler.inputs.real import as_real

    scores = as_real(outputs[spec.name], spec).reshape(-1)
    order = np.argsort(-scores, kind="stable")[:top]
    return [Class(int(i), labels[i] if labels else "", float(scores[i])) for i in order]
