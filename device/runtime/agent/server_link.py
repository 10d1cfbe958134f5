"""A connection to the server of this board's releases: downloads that resume, at a bounded rate."""

from __future__ import annotations

import http.client
import json
import os
import re
from pathlib import Path
from typing import Any, Dict, Optional

from edgekit.device.runtime.agent.push import (
    Bandwidth,
    LaterError,
    PushTarget,
    answer_of,
    connect,
    retry_after,
)
from edgekit.device.runtime.agent.store import sha256_file
from edgekit.device.runtime.agent.strict import short
from edgekit.device.runtime.errors import InputError, TransferError

_PIECE = 1 << 14
_PIECE_OVERHEAD = 160  # of TLS and TCP
_REQUEST_BYTES = 3072  # of a handshake, or of a request with its answer's head
_MOST_ANSWER = 1 << 12
_RANGE = re.compile(r"bytes ([0-9]{1,15})-[0-9]{1,15}/([0-9]{1,15})")


class ServerLink:
    """Requests of one poll, over one connection that is opened when first needed. LaterError if
    the server cannot be reached or breaks off, InputError if it rejects this board. `announced` is
    a certificate that the server may have besides the pinned one, `certificate` the one that it
    has presented."""

    def __init__(self, home: PushTarget, bandwidth: Bandwidth, announced: str = "") -> None:
        self._home, self._bandwidth, self._announced = home, bandwidth, announced
        self.certificate = home.certificate
        self._connection: Optional[http.client.HTTPConnection] = None

    def __enter__(self) -> ServerLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def metadata(self, name: str, most: int) -> Optional[bytes]:
        """A metadata file; None if the server has none."""
        try:
            answer = self._ask("GET", f"metadata/{name}")
            if answer.status == 404:
                answer.read(_MOST_ANSWER)
                return None
            self._check(answer, 200)
            parts, left = [], most + 1
            while left > 0 and (part := answer.read(min(left, _PIECE))):
                self._bandwidth.take(len(part) + _PIECE_OVERHEAD)
                parts.append(part)
                left -= len(part)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from None
        data = b"".join(parts)
        if len(data) > most:
            raise TransferError(f"{name}: expected at most {most} bytes, found more")
        return data

    def download(self, sha256: str, length: int, path: Path) -> None:
        """Downloads a file to `path`, beginning after what an earlier attempt has left there.
        TransferError if it is another file; OSError if it cannot be written."""
        start = path.stat().st_size if path.exists() else 0
        if start < length:
            try:
                self._receive(f"files/{sha256}", length, path, start)
            except http.client.HTTPException as error:
                raise self._broken(error) from None
        size = path.stat().st_size if path.exists() else 0
        if size != length or sha256_file(path) != sha256:
            found = f"{size} bytes with SHA-256 {sha256_file(path)[:16]}" if size else "none"
            path.unlink(missing_ok=True)
            raise TransferError(
                f"{sha256[:16]}: expected {length} bytes with that SHA-256, found {found}; the "
                "next attempt begins anew"
            )

    def delta(self, name: str, most: int, path: Path) -> int:
        """Downloads a delta to `path`, beginning after what an earlier attempt has left there;
        returns its length. Returns 0 if the server has none of at most `most` bytes. OSError if it
        cannot be written."""
        start = path.stat().st_size if path.exists() else 0
        if start:  # a byte less, so that something is left to ask for
            start -= 1
            os.truncate(path, start)
        try:
            answer = self._ask("GET", f"deltas/{name}", start=start)
            if answer.status in (404, 416):
                answer.read(_MOST_ANSWER)
                path.unlink(missing_ok=True)
                return 0
            self._check(answer, 206 if start else 200)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from None
        length = start + (answer.length or 0)
        if not start < length <= most:
            self.close()
            path.unlink(missing_ok=True)
            return 0
        try:
            self._save(answer, length, path, start)
        except http.client.HTTPException as error:
            raise self._broken(error) from None
        return length

    def report(self, document: Dict[str, Any]) -> None:
        """Tells the server how a release went."""
        try:
            answer = self._ask("POST", "report", json.dumps(document).encode())
            self._check(answer, 200)
            answer.read(_MOST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from None

    def _receive(self, page: str, length: int, path: Path, start: int) -> None:
        try:
            answer = self._ask("GET", page, start=start)
            self._check(answer, 206 if start else 200)
        except OSError as error:
            raise self._broken(error) from None
        self._save(answer, length, path, start)

    def _save(self, answer: http.client.HTTPResponse, length: int, path: Path, start: int) -> None:
        """Appends what is left of a file to `path`, synced."""
        if start:
            found = _RANGE.fullmatch(answer.getheader("Content-Range") or "")
            if found is None or (int(found[1]), int(found[2])) != (start, length):
                path.unlink()
                raise TransferError(
                    f"{path.name[:16]}: expected bytes {start}- of {length}, found "
                    f"{short(answer.getheader('Content-Range'))}; the next attempt begins anew"
                )
        left = length - start
        try:
            with path.open("ab") as file:
                while left > 0:
                    part = self._part(answer, left)
                    file.write(part)
                    left -= len(part)
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # of the disk; the rest of the answer must not be taken for the next one
            self.close()
            raise
        answer.read(1)  # leaves the connection ready for the next request

    def _part(self, answer: http.client.HTTPResponse, left: int) -> bytes:
        try:
            part = answer.read(min(left, _PIECE))
        except OSError as error:
            raise self._broken(error) from None
        if not part:
            raise self._broken(EOFError(f"the end {left} bytes early"))
        self._bandwidth.take(len(part) + _PIECE_OVERHEAD)
        return part

    def _ask(
        self, method: str, page: str, body: Optional[bytes] = None, start: int = 0
    ) -> http.client.HTTPResponse:
        self._bandwidth.take(_REQUEST_BYTES + len(body or b""))
        if self._connection is None or self._connection.sock is None:
            self._connection, self.certificate = connect(self._home, self._announced)
        own = {"Authorization": f"Bearer {self._home.token}"}
        if start:
            own["Range"] = f"bytes={start}-"
        path = f"/v1/boards/{self._home.board}/releases/{page}"
        self._connection.request(method, path, body, own)
        return answer_of(self._connection)

    def _check(self, answer: http.client.HTTPResponse, expected: int) -> None:
        if answer.status == expected:
            return
        why = short(answer.read(_MOST_ANSWER).decode("utf-8", "replace"))
        where = f"{self._home.host}:{self._home.port}"
        message = f"{where}: expected it to offer releases, found {answer.status} {why}"
        if answer.status in (401, 403):
            raise InputError(f"{message}; on the host: edgekit fleet enroll {self._home.board}")
        raise LaterError(message, retry_after(answer))

    def _broken(self, error: Exception) -> LaterError:
        self.close()
        where = f"{self._home.host}:{self._home.port}"
        return LaterError(f"{where}: expected to fetch releases, found {short(error)}")
