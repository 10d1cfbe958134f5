"""File transfers over SFTP that survive a cut link: each attempt resumes the last one.

Each upload in progress has a unique name, so that no two writers ever share a file; to resume
someone else's partial upload, a writer takes it over by renaming it.
"""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
import secrets
import time
from collections.abc import Callable

from tenacity import RetryCallState

from edgekit.host.deploy.transport.base import LARGEST_FILE, OnBytes
from edgekit.host.deploy.transport.sftp import (
    CREATE,
    EXCLUSIVE,
    NO_SUCH_FILE,
    READ,
    WRITE,
    FileFacts,
    Sftp,
    SftpError,
)
from edgekit.host.deploy.transport.ssh_link import Deadline

# Returns the hash of a prefix of a file on the board, or None if it is unavailable.
PrefixHash = Callable[[str, int], str | None]

_AREA = "incoming"  # the board's runtime deletes files here after a day
_PRIVATE = ".part-"
_PATIENCE_SECONDS = 60.0  # of reconnecting without transferring a byte
_LONGEST_PAUSE_SECONDS = 2.0
_SHORTEST_SECONDS = 0.2  # less is not worth another attempt
_SMALL = 65536  # bytes; up to this size a file is sent again from the start


class CallbackError(Exception):
    """An exception from the caller's progress callback, to be distinguished from a cut link."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class TransferProgress:
    """Reports the progress of a transfer; counts each byte once, however often it is sent."""

    def __init__(self, on_bytes: OnBytes | None) -> None:
        self._on_bytes = on_bytes
        self._reached = 0
        self.changed = time.monotonic()  # when the last byte got through

    def reach(self, done: int) -> None:
        more = done - self._reached
        if more > 0:
            self._reached = done
            self.changed = time.monotonic()
            if self._on_bytes:
                try:
                    self._on_bytes(more)
                except OSError as error:
                    raise CallbackError(error) from None


class Patience:
    """The retry policy: short intervals as long as bytes get through."""

    def __init__(self, end: Deadline, progress: TransferProgress) -> None:
        self._end = end
        self._progress = progress
        self._seen = progress.changed
        self._in_vain = 0

    def is_over(self, _: RetryCallState) -> bool:
        idle = time.monotonic() - self._progress.changed
        return self._end.left < _SHORTEST_SECONDS or idle > _PATIENCE_SECONDS

    def pause(self, _: RetryCallState) -> float:
        self._in_vain = 0 if self._progress.changed != self._seen else self._in_vain + 1
        self._seen = self._progress.changed
        return min(0.05 * 2.0 ** min(self._in_vain, 6), _LONGEST_PAUSE_SECONDS, self._end.left)


class Upload:
    """An upload of `data` to `path`."""

    def __init__(self, path: str, data: bytes, progress: TransferProgress) -> None:
        self._path = path
        self._data = memoryview(data)
        self._progress = progress
        self._stem = f"{_PRIVATE}{hashlib.sha256(data).hexdigest()[:32]}-"
        self._part: str | None = None  # our temporary name, once the file exists

    def attempt(self, sftp: Sftp, prefix_hash: PrefixHash) -> None:
        """Sends the missing bytes and moves the file into place."""
        if self._part is not None and self._is_in_place(prefix_hash):
            self._discard_partial(sftp)  # the answer to the last rename was lost
            self._progress.reach(len(self._data))
            return
        handle = self._resume_partial(sftp, prefix_hash) or self._create_partial(sftp)
        try:
            done = min(sftp.facts(handle).size, len(self._data))
            self._progress.reach(done)
            sftp.write(handle, self._data, done, self._progress.reach)
            sftp.sync(handle)
            sftp.close_file(handle)
            self._move_into_place(sftp)
        except SftpError as error:
            if error.code == NO_SUCH_FILE and self._is_taken(sftp):
                # Another deploy took over the file, and may have finished it. If not, an attempt
                # under a name that nobody else looks for is sure to terminate.
                self._part, self._stem = None, _PRIVATE
                if not self._is_in_place(prefix_hash):
                    self.attempt(sftp, prefix_hash)
                return
            self._discard_partial(sftp)  # refused, not cut off: it would only fill the disk
            raise

    def _resume_partial(self, sftp: Sftp, prefix_hash: PrefixHash) -> bytes | None:
        """Opens an earlier attempt's partial file, if it is a prefix of our data."""
        if len(self._data) <= _SMALL:
            return None
        if self._part is None and self._stem != _PRIVATE:
            self._part = self._take_over(sftp)
        if self._part is None:
            return None
        path = self._part
        try:
            handle = sftp.open(path, WRITE)
        except SftpError as error:
            if error.code != NO_SUCH_FILE:
                raise
            return None
        size = sftp.facts(handle).size
        expected = hashlib.sha256(self._data[:size]).hexdigest()
        if 0 < size <= len(self._data) and prefix_hash(self._part, size) == expected:
            return handle
        sftp.close_file(handle)
        self._discard_partial(sftp)
        return None

    def _take_over(self, sftp: Sftp) -> str | None:
        for name in sftp.names(_AREA):
            if name.startswith(self._stem):
                mine = self._new_name()
                with contextlib.suppress(SftpError):  # another was faster
                    sftp.rename(f"{_AREA}/{name}", mine)
                    return mine
        return None

    def _create_partial(self, sftp: Sftp) -> bytes:
        self._part = self._new_name()
        path = self._part
        try:
            return sftp.open(path, WRITE | CREATE | EXCLUSIVE)
        except SftpError as error:
            if error.code != NO_SUCH_FILE:
                raise
        _make_folders(sftp, posixpath.dirname(path))
        return sftp.open(path, WRITE | CREATE | EXCLUSIVE)

    def _move_into_place(self, sftp: Sftp) -> None:
        assert self._part is not None
        try:
            sftp.rename(self._part, self._path)
        except SftpError as error:
            if error.code != NO_SUCH_FILE:
                raise
            _make_folders(sftp, posixpath.dirname(self._path))
            sftp.rename(self._part, self._path)

    def _is_taken(self, sftp: Sftp) -> bool:
        assert self._part is not None
        try:
            sftp.close_file(sftp.open(self._part, READ))
        except SftpError as error:
            return error.code == NO_SUCH_FILE
        return False

    def _is_in_place(self, prefix_hash: PrefixHash) -> bool:
        expected = hashlib.sha256(self._data).hexdigest()
        return prefix_hash(self._path, len(self._data) + 1) == expected

    def _discard_partial(self, sftp: Sftp) -> None:
        if self._part is not None:
            with contextlib.suppress(SftpError):
                sftp.remove(self._part)
            self._part = None

    def _new_name(self) -> str:
        return f"{_AREA}/{self._stem}{secrets.token_hex(4)}"


class Download:
    """A download; `data` is the part received so far."""

    def __init__(self, path: str, progress: TransferProgress) -> None:
        self._path = path
        self._progress = progress
        self._facts: FileFacts | None = None
        self.data = bytearray()

    def attempt(self, sftp: Sftp) -> None:
        """Fetches the missing bytes; starts over if the file has changed meanwhile."""
        handle = sftp.open(self._path, READ)
        facts = sftp.facts(handle)
        if facts.size > LARGEST_FILE:
            raise SftpError(0, f"a file of {facts.size} bytes, more than {LARGEST_FILE}")
        if facts != self._facts:
            self._facts = facts
            self.data.clear()
        while len(self.data) < facts.size:
            before = len(self.data)
            sftp.read(handle, before, facts.size, self._on_chunk)
            if len(self.data) == before:
                raise SftpError(0, "it became shorter meanwhile")
        sftp.close_file(handle)

    def _on_chunk(self, chunk: bytes) -> None:
        self.data += chunk
        self._progress.reach(len(self.data))


def _make_folders(sftp: Sftp, folder: str) -> None:
    """Creates folders from the top down; ignores errors for folders that exist."""
    above = posixpath.dirname(folder)
    try:
        sftp.make_folder(folder)
    except SftpError as error:
        if error.code == NO_SUCH_FILE and above not in ("", folder):
            _make_folders(sftp, above)
            with contextlib.suppress(SftpError):
                sftp.make_folder(folder)
