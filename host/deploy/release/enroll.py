"""Telling a board whose releases it takes."""

from __future__ import annotations

from edgekit.device.runtime.agent.signing import PublicKey, Trust
from edgekit.host.deploy.bundle.sign import host_key
from edgekit.host.deploy.release.runtime import BoardRuntime
from edgekit.host.deploy.transport import Transport


def enroll(transport: Transport, key: PublicKey) -> Trust:
    """Makes the board take releases signed by `key`, and none that are unsigned."""
    return _trust(transport, "--key", key.line)


def enroll_host(transport: Transport) -> Trust:
    """Makes the board take what this host signs."""
    return enroll(transport, host_key().public)


def enroll_unsigned(transport: Transport) -> Trust:
    """Makes the board take any release; meant for boards without ssh-keygen."""
    return _trust(transport, "--unsigned")


def _trust(transport: Transport, *arguments: str) -> Trust:
    found = BoardRuntime(transport).call("enroll", *arguments)
    return Trust(tuple(found["keys"]), found["unsigned"])
