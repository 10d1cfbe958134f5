"""Helpers for `tune` and `estimate` with several boards or models, or on a Dask cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.errors import EdgekitError, InputError, PartialError

if TYPE_CHECKING:
    from edgekit.host.lab.jobs.pool import Pool
    from edgekit.host.lab.jobs.task import Sent, TaskReport

Workers = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="tcp://HOST:8786",
        show_default=False,
        help="Dask scheduler whose workers reach the boards (default: this machine).",
    ),
]
_INTERRUPTED = 130


def boards_of(given: str | None) -> tuple[str, ...]:
    """Parses `--board a,b`; InputError for duplicates."""
    from edgekit.host.cli.options import board_name

    names = tuple(part.strip() for part in board_name(given).split(","))
    for name in names:
        if not name:
            raise InputError(f"--board: expected names with commas between, found '{given}'")
        if names.count(name) > 1:
            raise InputError(f"--board: expected each board once, found '{name}' twice")
    return names


def check_cores(cluster: str | None) -> None:
    """Raises InputError if --cluster has a Dask scheduler, its former meaning, instead of cores."""
    if cluster is not None and "://" in cluster:
        raise InputError(f"--cluster {cluster} is now --dask {cluster}")


def flags(**given: Any) -> list[str]:
    """Builds command line options: none for None and False, a flag for True, one per list item."""
    words: list[str] = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            values = value if isinstance(value, list | tuple) else [value]
            words += [word for each in values for word in (option, str(each))]
    return words


def sent(path: Path, model: bool = True) -> tuple[Sent, dict[str, bytes]]:
    """A file as a word of a task's command, and the file contents to send with it."""
    from edgekit.host.cli.options import FileKind, file_kind
    from edgekit.host.compiler.frontends import model_files
    from edgekit.host.lab.jobs.task import Sent

    files: tuple[Path, ...] = (path,)
    if model and file_kind(path) is FileKind.MODEL:
        files = model_files(path)
    found = {str(each.relative_to(path.parent)): each.read_bytes() for each in files}
    return Sent(path.name), found


def sent_under(folder: str, path: Path) -> tuple[Sent, dict[str, bytes]]:
    """Like `sent`, for a file or folder that is not a model, placed in `folder`; InputError if it
    does not exist."""
    from edgekit.host.lab.jobs.task import Sent

    if not path.exists():
        raise InputError(f"--{folder}: expected a file or a folder, found nothing at {path}")
    files = [f for f in sorted(path.rglob("*")) if f.is_file()] if path.is_dir() else [path]
    found = {f"{folder}/{each.relative_to(path.parent)}": each.read_bytes() for each in files}
    return Sent(f"{folder}/{path.name}"), found


@contextlib.contextmanager
def pool_for(
    dask: str | None, reached: Sequence[str] = (), size: int | None = None
) -> Iterator[Pool]:
    """A pool of `size` local processes, or of Dask workers, which must know the boards
    `reached`."""
    pool: Pool
    if dask is None:
        from edgekit.host.lab.jobs.pool import LocalPool

        pool = LocalPool(size)
    else:
        from edgekit.host.lab.jobs.dask_pool import SCHEMES, DaskPool

        if not dask.startswith(SCHEMES):
            raise InputError(f"--dask: expected tcp://HOST:PORT or tls://HOST:PORT, found {dask}")
        remote = DaskPool(dask)
        try:
            remote.look_for(reached)
        except BaseException:
            remote.close()
            raise
        pool = remote
    try:
        yield pool
    finally:
        pool.close()


def check_all(reports: Sequence[tuple[str, TaskReport | None]]) -> None:
    """Raises PartialError with the number of failures, after all results were shown; for a single
    task the error itself."""
    failed = [(name, r) for name, r in reports if r is None or r.code]
    if not failed:
        return
    name, report = failed[0]
    if report and report.code == _INTERRUPTED:
        raise KeyboardInterrupt
    line = report.message if report else "not begun"
    if len(reports) == 1 and report:
        error = EdgekitError(line)
        error.exit_code = report.code
        raise error
    raise PartialError(f"{len(failed)} of {len(reports)} failed; the first, {name}: {line}")
