"""Configures which releases a board accepts."""

from __future__ import annotations

from edgekit.device.runtime.agent.signing import PublicKey, Trust
from edgekit.host.deploy.bundle.sign import host_key
from edgekit.host.deploy.release.runtime import BoardCalls


def enroll(board: BoardCalls, key: PublicKey, only: bool = False) -> Trust:
    """Makes the board accept releases signed by `key`, with `only` by no other key, and reject
    unsigned ones."""
    return _enroll(board, "--key", key.line, *(["--only"] if only else []))


def enroll_host(board: BoardCalls, only: bool = False) -> Trust:
    """Makes the board accept releases signed by this host, with `only` by no other."""
    return enroll(board, host_key().public, only)


def enroll_unsigned(board: BoardCalls) -> Trust:
    """Makes the board accept any release; meant for boards without ssh-keygen."""
    return _enroll(board, "--unsigned")


def _enroll(board: BoardCalls, *arguments: str) -> Trust:
    found = board.call("enroll", *arguments)
    return Trust(tuple(found["keys"]), found["unsigned"])
