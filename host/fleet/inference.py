"""Runs one input on many boards and finds those whose outputs differ from the majority.

Boards with the same release run the same library, so on one kind of core outputs are bit-identical.
A board that differs has bad memory, a corrupted file or a failing core.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.host.common.files import atomic_write
from edgekit.host.compiler.inputs import InputOptions, is_array, read_arrays, read_inputs
from edgekit.host.errors import InputError
from edgekit.host.fleet.runner import FleetRun, Turn

WriteFile = Callable[[Path, bytes], None]


@dataclass(frozen=True)
class InferenceResult:
    """Result of one board: `digest` is the SHA-256 of the outputs' names, types, shapes and bytes;
    `latency_ms` is the time of a single, first run."""

    release: str
    latency_ms: float
    digest: str


def read_input(file: Path) -> None:
    """Raises InputError if `file` cannot be an input of any model."""
    if not file.is_file():
        raise InputError(f"--input: expected a file of one input, found none at {file}")
    if is_array(file):
        read_arrays(file)


def infer(
    turn: Turn,
    file: Path,
    options: InputOptions,
    folder: Path | None,
    name: str | None,
    threads: int | None,
    signature: str = "",
    write: WriteFile = atomic_write,
) -> InferenceResult:
    """Runs one inference on a board, of `signature` if the model has several; writes the outputs to
    `folder` as BOARD.npz with `write`."""
    turn.tell("loading")
    with turn.device.named(name).open(threads) as session:
        variants = session.served.of(signature)
        inputs = next(iter(read_inputs(file, variants, options, variants[0].stateful)))
        turn.tell("running")
        outputs, timings = session.run(inputs, signature)
        release = session.served.release
    if folder is not None:
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **outputs)
        write(folder / f"{turn.board.name}.npz", stream.getvalue())
    return InferenceResult(release, timings.latency_ms, _hash_outputs(outputs))


def odd_ones(run: FleetRun[InferenceResult]) -> tuple[str, ...]:
    """Boards whose outputs differ from those of most boards with the same release."""
    by_release: dict[str, Counter[str]] = defaultdict(Counter)
    answers = [(o.board, o.value) for o in run.outcomes if o.value is not None]
    for _, answer in answers:
        by_release[answer.release][answer.digest] += 1
    usual = {release: found.most_common(1)[0][0] for release, found in by_release.items()}
    return tuple(board for board, answer in answers if answer.digest != usual[answer.release])


def _hash_outputs(outputs: dict[str, NDArray[Any]]) -> str:
    found = hashlib.sha256()
    for name in sorted(outputs):
        array = np.ascontiguousarray(outputs[name])
        found.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        found.update(array.tobytes())
    return found.hexdigest()
