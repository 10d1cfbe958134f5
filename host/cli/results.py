"""Output files of runs: .npz, .json, .csv, a folder of .npz, standard output."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from edgekit.host.common.files import atomic_write, atomic_writer
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Outputs = dict[str, "NDArray[Any]"]
Take = Callable[[Path, Sequence[Outputs]], None]  # an input file and the outputs of its runs

STDOUT = "-"
WAV = ".wav"  # for what a voice says
SRT = ".srt"  # transcripts with times


def check_target(target: str, files: Sequence[Path], is_folder: bool) -> None:
    """Checks that outputs can go to `target`, before any work; raises InputError."""
    from edgekit.host.cli.output import check_writable

    path = Path(target)
    if target == STDOUT:
        return
    if names_folder(path):
        if not path.is_dir():
            check_writable(path)
        return
    if path.suffix.lower() not in (".npz", ".json", ".csv", WAV, SRT):
        raise InputError(
            f"{path}: expected a file .npz, .json or .csv, or a folder, or a .wav for a voice, or "
            "a .srt for subtitles, found none of these"
        )
    if is_folder and path.suffix.lower() == ".npz":
        raise InputError(
            f"{path}: expected a folder for the outputs of {len(files)} files, found the name of "
            "one .npz; name a folder, or a .json or .csv"
        )
    check_writable(path)


@contextlib.contextmanager
def results(target: str | None, files: Sequence[Path]) -> Iterator[Take]:
    """Yields a function that stores the outputs of each input file; output files are atomic."""
    if target is None:
        yield lambda *_: None
    elif target == STDOUT:
        with _json_text(lambda text: sys.stdout.write(text)) as take:
            yield take
    elif names_folder(Path(target)):
        yield _folder_writer(Path(target), files)
    elif target.lower().endswith(".npz"):
        yield lambda _, runs: atomic_write(Path(target), _encode_npz(runs))
    else:
        with atomic_writer(Path(target)) as file:
            writer = _json_text if target.lower().endswith(".json") else _csv_text
            with writer(_text_writer(file)) as take:
                yield take


def names_folder(path: Path) -> bool:
    """Whether outputs go to files in `path`, which may not exist yet."""
    return path.is_dir() or (not path.suffix and not path.exists())


def name_of(file: Path, files: Sequence[Path]) -> str:
    """The stem of an output's name: files with the same one keep their suffix."""
    alone = [each.stem for each in files].count(file.stem) == 1
    return file.stem if alone else file.name


def _folder_writer(folder: Path, files: Sequence[Path]) -> Take:
    folder.mkdir(exist_ok=True)
    return lambda file, runs: atomic_write(
        folder / f"{name_of(file, files)}.npz", _encode_npz(runs)
    )


def _encode_npz(runs: Sequence[Outputs]) -> bytes:
    """The outputs as .npz; several runs are stacked along a new first axis."""
    import numpy as np

    from edgekit.device.runtime.agent.npz import Array, npz_bytes

    made = runs[0]
    if len(runs) > 1:
        made = {name: np.stack([outputs[name] for outputs in runs]) for name in made}
    return npz_bytes({name: Array.of(array) for name, array in made.items()})


def _text_writer(file: BinaryIO) -> Callable[[str], object]:
    return lambda text: file.write(text.encode())


@contextlib.contextmanager
def _json_text(write: Callable[[str], object]) -> Iterator[Take]:
    """Writes one JSON document; non-finite values become null."""
    first = True

    def take(file: Path, runs: Sequence[Outputs]) -> None:
        nonlocal first
        for outputs in runs:
            values = {name: plain(array) for name, array in outputs.items()}
            entry = json.dumps({"input": file.name, "outputs": values}, allow_nan=False)
            write(("\n    " if first else ",\n    ") + entry)
            first = False

    write('{\n  "schema": "edgekit.outputs/1",\n  "runs": [')
    yield take
    write("\n  ]\n}\n")


def plain(array: NDArray[Any]) -> Any:
    """The values as nested lists for JSON; non-finite values become None."""
    import numpy as np

    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    values = array.astype(object)
    values[~np.isfinite(array)] = None
    return values.tolist()


@contextlib.contextmanager
def _csv_text(write: Callable[[str], object]) -> Iterator[Take]:
    """Writes one line per value."""
    import numpy as np

    line = io.StringIO()
    rows = csv.writer(line, lineterminator="\n")

    def flush() -> None:
        write(line.getvalue())
        line.seek(0)
        line.truncate()

    def take(file: Path, runs: Sequence[Outputs]) -> None:
        for number, outputs in enumerate(runs):
            for name, array in outputs.items():
                for index, value in np.ndenumerate(array):
                    at = " ".join(map(str, index))
                    rows.writerow((file.name, number, name, at, value.item()))
            flush()

    rows.writerow(("input", "run", "output", "index", "value"))
    flush()
    yield take
