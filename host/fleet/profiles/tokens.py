"""Authentication tokens of boards that may send profiles; only their hashes are stored."""

from __future__ import annotations

import functools
import hashlib
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from edgekit.host.common.files import atomic_write, locked, private_folder
from edgekit.host.errors import InputError

_BOARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_Hashes = dict[str, Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]]


@dataclass(frozen=True)
class Tokens:
    """The file at `path`: one hash per board."""

    path: Path

    def issue(self, board: str) -> str:
        """Issues a new token for `board`, replacing any previous one."""
        if not _BOARD.fullmatch(board):
            raise InputError(
                "expected a board's name of at most 64 letters, digits, '.', '-' and '_', "
                f"found {board[:70]!r}"
            )
        token = secrets.token_hex(32)
        private_folder(self.path.parent)
        with locked(self.path.with_suffix(".lock")):
            self._write({**self._read(), board: _hash_token(token)})
        return token

    def revoke(self, board: str) -> None:
        """Revokes the token of `board`. InputError if it has none."""
        with locked(self.path.with_suffix(".lock")):
            hashes = self._read()
            if board not in hashes:
                raise InputError(
                    f"expected an enrolled board, found '{board}'; enrolled: "
                    f"{', '.join(sorted(hashes)) or 'none'}"
                )
            del hashes[board]
            self._write(hashes)

    def board_of(self, token: str) -> str | None:
        """The board that owns the token, or None."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        boards = _boards_by_hash(self, found.st_ino, found.st_mtime_ns)
        return boards.get(_hash_token(token))  # tokens are random, so lookup timing reveals nothing

    def _read(self) -> _Hashes:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Hashes)
        except FileNotFoundError:
            return {}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(
                f"{self.path}: expected the boards' tokens, found: {error}; "
                "remove it and enroll the boards again"
            ) from None

    def _write(self, hashes: _Hashes) -> None:
        atomic_write(self.path, msgspec.json.encode(hashes))


@functools.lru_cache(maxsize=2)
def _boards_by_hash(tokens: Tokens, *_: int) -> dict[str, str]:
    """Maps hashes to boards, cached until the file is replaced: reading it for every request would
    dominate the cost from about a thousand boards on."""
    return {found: board for board, found in tokens._read().items()}


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
