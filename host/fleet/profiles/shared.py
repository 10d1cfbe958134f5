"""A profile store in a folder shared by several hosts, or in an S3 bucket.

parts/board_type=<profile>/date=<day>/<partition>-<stream>-<first>-<last>.parquet   see writer.py
refused/        batches that could not be read
edgekit.json    marks the folder as a store

There is no catalog: a file counts once it exists, and files are created atomically.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from edgekit.host.common.files import atomic_writer
from edgekit.host.common.text import printable
from edgekit.host.errors import EdgekitError, InputError, TransferError
from edgekit.host.fleet.profiles.catalog import BoardSummary
from edgekit.host.fleet.profiles.parquet import libraries, sync_folder, write_table

if TYPE_CHECKING:
    import pyarrow

WriteRows = Callable[["pyarrow.Table", Any], None]
_MARK = "edgekit.json"
_SCHEMA = "edgekit.profiles.shared/1"
_OLD_SECONDS = 3600.0  # age after which an incomplete file is considered abandoned
_BOARDS = """
SELECT board, max(profile), count(*), count(DISTINCT release), max(received) FROM batches
GROUP BY board ORDER BY board
"""
_DROPPED = """
SELECT board, sum(dropped) FROM
    (SELECT board, max(dropped) AS dropped FROM batches GROUP BY board, spool)
GROUP BY board
"""


class SharedStore:
    """The store at `where`: a folder, or s3://BUCKET/FOLDER, with credentials and region from the
    standard AWS environment variables and files. `write_rows` writes a table to an open file.
    Errors that can be fixed while others wait are TransferErrors, all others InputErrors."""

    def __init__(self, where: str, write_rows: WriteRows = write_table) -> None:
        libraries()
        import pyarrow.fs

        self._write_rows = write_rows
        self.folder = where.partition("?")[0]
        self.remote: Any = None
        if where.startswith("s3://"):
            with self._convert_errors(where):
                self.remote, self._base = _open_s3(where)
        elif "://" in where:
            raise InputError(
                f"expected a folder or s3://BUCKET/FOLDER, found {printable(where, 80)!r}"
            )
        else:
            self._base = str(Path(where).absolute())
        self._fs = self.remote or pyarrow.fs.LocalFileSystem()

    def make(self) -> None:
        """Creates the store if it does not exist; raises an error if it is not writable."""
        if self.remote is None:
            with self._convert_errors(self.folder):
                Path(self._base).mkdir(parents=True, exist_ok=True)
                for path in Path(self._base).glob("parts/*/*/.*"):
                    if time.time() - path.stat().st_mtime > _OLD_SECONDS:
                        path.unlink(missing_ok=True)
        self._write_file(_MARK, lambda file: file.write(msgspec.json.encode({"schema": _SCHEMA})))

    def write(self, path: str, table: pyarrow.Table) -> None:
        """Writes a file of rows durably, at a path relative to `parts`. An existing file of that
        name, which has the same rows, is replaced."""
        self._write_file(f"parts/{path}", lambda file: self._write_rows(table, file))

    def keep_refused(self, name: str, body: bytes, why: str) -> None:
        """Stores a batch that cannot be read."""
        self._write_file(f"refused/{name}.txt", lambda file: file.write(f"{why}\n".encode()))
        self._write_file(f"refused/{name}.json", lambda file: file.write(body))

    def parts(self) -> list[str]:
        """The files of rows, as paths relative to `parts`."""
        import pyarrow.fs

        top = f"{self._base}/parts"
        chosen = pyarrow.fs.FileSelector(top, allow_not_found=True, recursive=True)
        with self._convert_errors(self.folder):
            found = self._fs.get_file_info(chosen)
        paths = (info.path[len(top) + 1 :] for info in found if info.is_file)
        return sorted(p for p in paths if p.endswith(".parquet") and "/." not in p)

    def names(self, path: str) -> list[tuple[str, str]]:
        """Board and UUID of each batch in a file of rows."""
        _, pq = libraries()
        with self._convert_errors(f"{self.folder}/parts/{path}"):
            table = pq.read_table(
                f"{self._base}/parts/{path}",
                columns=["board", "uuid"],
                filesystem=self._fs,
                partitioning=None,
            )
        found = table.group_by(["board", "uuid"]).aggregate([])
        return list(zip(found["board"].to_pylist(), found["uuid"].to_pylist(), strict=True))

    @contextlib.contextmanager
    def reading(self) -> Iterator[tuple[None, Sequence[Path]]]:
        """Same interface as ProfileStore.reading, but without a catalog."""
        import pyarrow.fs

        with self._convert_errors(self.folder):
            mark = self._fs.get_file_info(f"{self._base}/{_MARK}")
        if mark.type != pyarrow.fs.FileType.File:
            raise InputError(
                f"{self.folder}: expected a store of edgekit fleet serve, found "
                f"no {_MARK}; name its --store"
            )
        yield None, [Path(f"{self._base}/parts/{path}") for path in self.parts()]

    def boards(self) -> list[BoardSummary]:
        """Summary of each board; quarantined batches are unknown here, since files of rows do not
        record them."""
        from edgekit.host.fleet.profiles.query import asking

        with asking(self) as views:
            rows = views.rows(_BOARDS)
            dropped = dict(views.rows(_DROPPED))
        return [
            BoardSummary(board, profile, batches, releases, int(dropped[board]), None, last)
            for board, profile, batches, releases, last in rows
        ]

    def _write_file(self, path: str, fill: Any) -> None:
        target = f"{self._base}/{path}"
        with self._convert_errors(f"{self.folder}/{path}"):
            if self.remote is not None:
                with self._fs.open_output_stream(target) as stream:
                    fill(stream)
                return
            folder = Path(target).parent
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_writer(Path(target)) as file:
                fill(file)
            while True:
                sync_folder(folder)
                if folder == Path(self._base):
                    return
                folder = folder.parent

    @contextlib.contextmanager
    def _convert_errors(self, what: str) -> Iterator[None]:
        """Converts errors to one-line messages that name `what`."""
        pa, _ = libraries()
        try:
            yield
        except EdgekitError:
            raise
        except (OSError, pa.ArrowException) as error:
            number = getattr(error, "errno", None)
            found = os.strerror(number) if number and self.remote is None else str(error)
            raise TransferError(
                f"{what.partition('?')[0]}: expected to read and write there, found: "
                f"{printable(_aws_reason(found), 200)}; fix that and run it again: nothing is "
                "lost, unwritten batches stay in NATS"
            ) from None


def _open_s3(where: str) -> tuple[Any, str]:
    """The file system of a URL, and the folder in it. Query parameters endpoint_override, scheme
    and region are those of PyArrow."""
    import pyarrow.fs

    parts = urlsplit(where)
    options = dict(parse_qsl(parts.query))
    if not parts.netloc or set(options) - {"endpoint_override", "scheme", "region"}:
        raise InputError(
            "expected s3://BUCKET/FOLDER, with ?endpoint_override=HOST:PORT&scheme=http&region=NAME"
            f" at most, found {printable(where, 120)!r}"
        )
    if not {"endpoint_override", "region"} & set(options) and "AWS_REGION" not in os.environ:
        options["region"] = pyarrow.fs.resolve_s3_region(parts.netloc)
    # Some S3-compatible servers reject the checksums that newer libraries add by default.
    os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    # Small files are written in a single request, which leaves nothing behind if interrupted.
    remote = pyarrow.fs.S3FileSystem(
        **options, allow_delayed_open=True, connect_timeout=5, request_timeout=30
    )
    return remote, f"{parts.netloc}{parts.path}".rstrip("/")


def _aws_reason(text: str) -> str:
    """Extracts the relevant part of an AWS library error."""
    for sign, meaning in (
        ("ACCESS_DENIED", "403, access denied: the keys may not do that"),
        ("HTTP status 403", "403, access denied: the keys may not do that"),
        ("SIGNATURE", "403, wrong secret key"),
        ("INVALID_ACCESS_KEY", "403, an unknown access key"),
        ("NO_SUCH_BUCKET", "404, no such bucket"),
        ("HTTP status 404", "404, no such bucket"),
        ("HTTP status 413", "413, the bucket is full"),
        ("QuotaExceeded", "403, the bucket is full"),
        ("HTTP status 507", "507, the server's disk is full"),
        ("SERVICE_UNAVAILABLE", "503, it accepts nothing now: it is full or overloaded"),
        ("NETWORK_CONNECTION", "the server does not answer"),
    ):
        if sign in text:
            return meaning
    return text
