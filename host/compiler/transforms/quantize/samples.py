"""Reads and validates the samples that a model is calibrated on: arrays, pictures or sounds."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.task import NORMALIZED, PICTURES, TaskSpec
from edgekit.device.runtime.agent.transcribe import normalized
from edgekit.host.compiler.inputs import (
    InputOptions,
    input_files,
    is_sound,
    read_arrays,
    read_inputs,
    read_notes,
    read_sound,
)
from edgekit.host.compiler.ir.types import Array, Graph, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import with_task
from edgekit.host.compiler.transforms.quantize.observe import Sample
from edgekit.host.errors import InputError

FEWEST = 8
_EVERY = 4  # one in so many samples is held out
_MOST_BYTES = 256 << 20  # of the quantized tensors of all samples in memory at a time


@dataclass(frozen=True)
class _Variant:
    inputs: tuple[TensorSpec, ...]
    signature: str = ""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {spec.name: spec.shape for spec in self.inputs}


def read_samples(
    path: Path, graph: Graph, options: InputOptions | None = None, task: TaskSpec | None = None
) -> list[Sample]:
    """Read samples from an array file or a folder. An array file has an array per input, with its
    name (a single array if the model has one input) and a leading sample axis; in a folder, every
    file is read as input; if the model transcribes speech, which is its `task`, a sound is
    normalized if it takes it so.

    Raises InputError (one line) for missing files, mismatched shapes or names, non-finite values,
    identical samples, or fewer than FEWEST of them.
    """
    if not path.exists():
        raise InputError(f"{path}: expected samples, an .npz file or a folder, found none")
    if path.is_dir():
        given = options or InputOptions()
        samples = [_input_in(file, graph, given, task) for file in input_files(path)]
    else:
        samples = _read_stacked(path, graph)
    _check_samples(path, graph, samples)
    return samples


def read_input(path: Path, graph: Graph) -> Sample:
    """Read the first input in a file, in the form that a graph takes. Raises InputError."""
    return _input_in(path, graph, InputOptions())


def _input_in(
    path: Path, graph: Graph, options: InputOptions, task: TaskSpec | None = None
) -> Sample:
    if task is not None and task.fit == NORMALIZED and is_sound(path):
        return _normalized_sound(path, graph.tensors[task.input], task.rate)
    variant = _Variant(tuple(_tensor_spec(graph.tensors[name]) for name in graph.inputs))
    (only,) = read_inputs(path, [variant], options)
    return only


def _normalized_sound(path: Path, tensor: Tensor, rate: int) -> Sample:
    """The first window of a sound as `transcribe` takes it."""
    part = normalized(array("f", read_sound(path, rate)[: tensor.elements].tolist()))
    padded = np.zeros(tensor.elements, np.float32)
    padded[: len(part)] = part
    return {tensor.name: padded.reshape(tensor.shape)}


def is_held_out(number: int) -> bool:
    """Whether sample `number`, counted from 0, is reserved for the report."""
    return number % _EVERY == _EVERY - 1


def held_out_files(folder: Path) -> list[Path]:
    """The files in a folder of samples that are held out: each has one."""
    return [file for i, file in enumerate(input_files(folder)) if is_held_out(i)]


def spread(samples: Sequence[Sample], count: int) -> Sequence[Sample]:
    """About `count` samples, evenly spaced."""
    return samples[:: max(len(samples) // count, 1)][:count]


def spread_for_memory(graph: Graph, samples: Sequence[Sample], most: int) -> Sequence[Sample]:
    """`most` samples, or as many as fit in memory with all their computed tensors."""
    each = sum(t.elements for t in graph.tensors.values() if t.data is None)
    return spread(samples, min(max(_MOST_BYTES // max(each, 1), 2), most))


def _tensor_spec(tensor: Tensor) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.dtype.value, tensor.shape, None, None)


def _read_stacked(path: Path, graph: Graph) -> list[Sample]:
    arrays = read_arrays(path)
    if not isinstance(arrays, dict):
        arrays = {"": arrays}
    if len(arrays) == len(graph.inputs) == 1:
        arrays = {graph.inputs[0]: next(iter(arrays.values()))}
    if {*arrays} != {*graph.inputs}:
        raise InputError(
            f"{path}: expected arrays {', '.join(graph.inputs)}, found "
            f"{', '.join(sorted(arrays)) or 'none'}; name them as the model's inputs"
        )
    parts = {n: _split_samples(path, graph.tensors[n], arrays[n]) for n in graph.inputs}
    counts = {name: len(part) for name, part in parts.items()}
    if len({*counts.values()}) > 1:
        found = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise InputError(
            f"{path}: expected the same number of samples for each input, found {found}"
        )
    return [
        {name: part[i] for name, part in parts.items()} for i in range(next(iter(counts.values())))
    ]


def _split_samples(path: Path, tensor: Tensor, array: Array) -> list[Array]:
    """Split an array into samples with the input's shape and dtype."""
    shape = tensor.shape
    one = shape[1:] if shape[:1] == (1,) else None
    if array.ndim < 1 or (array.shape[1:] != shape and array.shape[1:] != one):
        wanted = ["N", *(shape if one is None else one)]
        raise InputError(
            f"{path}: input '{tensor.name}': expected samples of shape "
            f"[{', '.join(map(str, wanted))}], found {list(array.shape)}"
        )
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and not tensor.dtype.is_float):
        raise InputError(
            f"{path}: input '{tensor.name}': expected {tensor.dtype.value} values, "
            f"found {array.dtype}"
        )
    return [each.reshape(shape).astype(tensor.dtype.numpy) for each in array]


def _check_samples(path: Path, graph: Graph, samples: Sequence[Sample]) -> None:
    if len(samples) < FEWEST:
        raise InputError(
            f"{path}: expected at least {FEWEST} samples to calibrate and to check on, found "
            f"{len(samples)}; give more, about a hundred"
        )
    floats = [name for name in graph.inputs if graph.tensors[name].dtype.is_float]
    for name in floats:
        for number, sample in enumerate(samples, 1):
            if not np.isfinite(sample[name]).all():
                raise InputError(
                    f"{path}: input '{name}': expected finite values, found NaN or infinity in "
                    f"sample {number}"
                )
    if floats and all(s[n].size > 1 and s[n].min() == s[n].max() for s in samples for n in floats):
        raise InputError(
            f"{path}: expected samples as the model will see them, found constant ones; give real "
            "inputs"
        )
    if all(np.array_equal(samples[0][n], each[n]) for each in samples[1:] for n in graph.inputs):
        raise InputError(f"{path}: expected different samples, found {len(samples)} copies of one")


def samples_of(
    model: Path, graph: Graph, data: Path, options: InputOptions | None = None
) -> list[Sample]:
    """`read_samples` with pictures and sounds prepared as `run` prepares them for the model's task,
    and else with the pixel scaling in its file, unless `options` override it."""
    given = with_notes(model, options)
    task = with_task(model, graph, CompileOptions(task="guess")).task if data.is_dir() else None
    of_pictures = task is not None and task.kind in PICTURES and not (task.tokenizer or task.hears)
    given = given.for_task(task) if task and of_pictures else given
    return read_samples(data, graph, given, task)


def with_notes(model: Path, options: InputOptions | None) -> InputOptions:
    """The options with what the model's file says about its input."""
    notes, given = read_notes(model).inputs[:1], options or InputOptions()
    return replace(given, notes=notes[0]) if notes else given
