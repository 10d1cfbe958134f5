"""Authentication tokens of boards that may send profiles; only their hashes are stored."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from edgekit.host.common.files import atomic_write, locked, private_folder, read_file
from edgekit.host.errors import InputError
from edgekit.kb.decoding import decode_json

_BOARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
# Of each board, with spaces between; several until an enrollment has succeeded
_Hashes = dict[str, Annotated[str, Meta(pattern="^[0-9a-f]{64}( [0-9a-f]{64})*$")]]


class Tokens:
    """The file at `path`: the hashes of each board's tokens. It is only ever replaced, never
    written in place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._boards: dict[str, str] = {}  # by hash, of the file that is held open
        self._descriptor = -1
        self._release: Callable[[], object] = lambda: None

    @contextlib.contextmanager
    def issuing(self, board: str) -> Iterator[str]:
        """Adds a token for `board`, for the body of the `with` statement to install; only then
        earlier ones end. If the body fails, the board may have either, and both stay valid. One
        enrollment of a board at a time; InputError if it was revoked meanwhile."""
        if not _BOARD.fullmatch(board):
            raise InputError(
                "expected a board's name of at most 64 letters, digits, '.', '-' and '_', "
                f"found {board[:70]!r}"
            )
        token = secrets.token_hex(32)
        private_folder(self.path.parent)
        with locked(self.path.parent / "enrolling" / f"{board}.lock"):
            with self._changing() as hashes:
                hashes[board] = f"{hashes.get(board, '')} {_hash_token(token)}".strip()
            yield token
            with self._changing() as hashes:
                if _hash_token(token) not in hashes.get(board, "").split():
                    raise InputError(
                        f"expected to enroll '{board}', found it revoked in the meantime; "
                        "enroll it again if it should send"
                    )
                hashes[board] = _hash_token(token)

    def issue(self, board: str) -> str:
        """Issues a new token for `board`, replacing any previous one."""
        with self.issuing(board) as token:
            return token

    def revoke(self, board: str) -> None:
        """Revokes the token of `board`. InputError if it has none."""
        with self._changing() as hashes:
            if board not in hashes:
                raise InputError(
                    f"expected an enrolled board, found '{board}'; enrolled: "
                    f"{', '.join(sorted(hashes)) or 'none'}"
                )
            del hashes[board]

    def boards(self) -> tuple[str, ...]:
        """The boards that have a token."""
        try:
            return tuple(sorted(self._decode(read_file(self.path))))
        except FileNotFoundError:
            return ()

    def board_of(self, token: str) -> str | None:
        """The board that owns the token, or None. Decoding the file for every request would
        dominate the cost from about a thousand boards on; while the file that was decoded is held
        open, its inode is not given to another, so a replaced file is always noticed."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        if self._descriptor < 0 or not os.path.samestat(found, os.fstat(self._descriptor)):
            self._load()
        return self._boards.get(_hash_token(token))  # random, so lookup timing reveals nothing

    def _load(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            hashes = self._decode(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
        except BaseException:
            os.close(descriptor)
            raise
        self._release()
        self._descriptor = descriptor
        self._release = weakref.finalize(self, os.close, descriptor)
        self._boards = {one: board for board, own in hashes.items() for one in own.split()}

    @contextlib.contextmanager
    def _changing(self) -> Iterator[_Hashes]:
        """The hashes, which replace the file's afterwards."""
        with locked(self.path.with_suffix(".lock")):
            try:
                hashes = self._decode(read_file(self.path))
            except FileNotFoundError:
                hashes = {}
            except OSError as error:
                raise self._damage(error.strerror or str(error)) from None
            yield hashes
            atomic_write(self.path, msgspec.json.encode(hashes))

    def _decode(self, data: bytes) -> _Hashes:
        try:
            return decode_json(data, _Hashes)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._damage(str(error)) from None

    def _damage(self, found: str) -> InputError:
        return InputError(
            f"{self.path}: expected the boards' tokens, found: {found}; "
            "remove it and enroll the boards again"
        )


class FileToken:
    """A token for programs and people, in a file of the store that only its owner reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        private_folder(path.parent)
        with locked(self.path.with_suffix(".lock")):
            if not self.path.exists():
                self.path.touch(mode=0o600)
                atomic_write(self.path, secrets.token_hex(32).encode() + b"\n")
        try:
            self._token = read_file(self.path).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            self._token = ""
            found = str(error)
        else:
            found = f"{len(self._token)} characters"
        if len(self._token) != 64:
            raise InputError(
                f"{self.path}: expected a token of 64 characters, found {found}; remove the file "
                "to get a new one"
            )

    def matches(self, token: str | None) -> bool:
        return token is not None and hmac.compare_digest(token, self._token)


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
