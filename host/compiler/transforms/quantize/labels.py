"""Reads the class labels of samples."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgekit.host.compiler.inputs import read_arrays
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.transforms.quantize.measure import class_output
from edgekit.host.errors import InputError

_MOST_BYTES = 64 << 20
_ARRAYS = (".npy", ".npz")
_NUMBER = r"[+-]?[0-9]{1,18}"


def read_labels(path: Path, graph: Graph, samples: int) -> NDArray[np.int64]:
    """Return a class number per sample, from a text file with a line each or an .npy or .npz file
    with one array.

    Raises InputError if the model is no classifier, or the labels do not match it or the samples.
    """
    name = class_output(graph)
    if name is None:
        raise InputError(
            f"{path}: expected a model with one output, a number for each class, found "
            f"{', '.join(f'{n} {list(graph.tensors[n].shape)}' for n in graph.outputs)}; leave out "
            "--evaluate"
        )
    if not path.is_file():
        raise InputError(f"{path}: expected a file with labels, found none")
    labels = _read_class_numbers(path)
    if labels.size != samples:
        raise InputError(
            f"{path}: expected a label for each of {samples} samples, found {labels.size}"
        )
    count = graph.tensors[name].elements
    if labels.min() < 0 or labels.max() >= count:
        wrong = int(labels[(labels < 0) | (labels >= count)][0])
        raise InputError(f"{path}: expected labels from 0 to {count - 1}, found {wrong}")
    return labels


def lists_class_numbers(path: Path) -> bool:
    """Whether `read_labels` is for the file: it holds an array, or its first line is a number."""
    if path.suffix.lower() in _ARRAYS:
        return True
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = next((line for line in file if line.strip()), "")
    except (OSError, UnicodeDecodeError):
        return False
    return re.fullmatch(_NUMBER, first.strip(), re.ASCII) is not None


def _read_class_numbers(path: Path) -> NDArray[np.int64]:
    if path.suffix.lower() in _ARRAYS:
        found = read_arrays(path)
        arrays = [*found.values()] if isinstance(found, dict) else [found]
        if len(arrays) != 1 or arrays[0].dtype.kind not in "iu":
            raise InputError(
                f"{path}: expected one array of integers, found "
                f"{', '.join(f'{a.dtype} {list(a.shape)}' for a in arrays) or 'none'}"
            )
        return arrays[0].reshape(-1).astype(np.int64)
    return np.array(_read_label_lines(path), np.int64)


def _read_label_lines(path: Path) -> list[int]:
    """Class numbers of all nonempty lines; InputError names the first invalid one."""
    if path.stat().st_size > _MOST_BYTES:
        raise InputError(f"{path}: expected at most {_MOST_BYTES >> 20} MiB of labels, found more")
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"{path}: expected a class number on each line, found no text") from None
    found = []
    for at, line in enumerate(lines, 1):
        text = line.strip()
        if not re.fullmatch(_NUMBER, text, re.ASCII):
            if not text:
                continue
            raise InputError(
                f"{path}: expected a class number on each line, found {text[:40]!r} on line {at}"
            )
        found.append(int(text))
    return found
