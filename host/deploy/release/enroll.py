"""Telling a board whose releases it takes."""

from __future__ import annotations

from edgekit.device.runtime.agent.signing import PublicKey, Trust
from edgekit.host.deploy.bundle.sign import host_key
from edgekit.host.deploy.release.runtime import BoardCalls


def enroll(board: BoardCalls, key: PublicKey) -> Trust:
    """Makes the board take releases signed by `key`, and none that are unsigned."""
    return _trust(board, "--key", key.line)


def enroll_host(board: BoardCalls) -> Trust:
    """Makes the board take what this host signs."""
    return enroll(board, host_key().public)


def enroll_unsigned(board: BoardCalls) -> Trust:
    """Makes the board take any release; meant for boards without ssh-keygen."""
    return _trust(board, "--unsigned")


def _trust(board: BoardCalls, *arguments: str) -> Trust:
    found = board.call("enroll", *arguments)
    return Trust(tuple(found["keys"]), found["unsigned"])
