"""A network namespace whose only way out is a cable to this host, and in which nothing listens."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


def missing() -> str:
    """What this host lacks to make one; empty if nothing."""
    if os.getuid() != 0:
        return "root"
    if shutil.which("ip") is None:
        return "iproute2"
    tried = subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True)
    return "" if tried.returncode == 0 else "the right to make network namespaces"


@contextmanager
def namespace() -> Iterator[tuple[str, str]]:
    """A namespace: its name, and this host's address, which is all that can be reached from it."""
    name, net = f"edgekit{os.getpid()}", f"10.213.{os.getpid() % 256}"
    outer, inner = f"ek{os.getpid() % 100_000}a", f"ek{os.getpid() % 100_000}b"
    _ip("netns", "add", name)
    try:
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
        for where, link, address in (([], outer, f"{net}.1"), (["-n", name], inner, f"{net}.2")):
            _ip(*where, "address", "add", f"{address}/24", "dev", link)
            _ip(*where, "link", "set", link, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield name, f"{net}.1"
    finally:
        _ip("netns", "delete", name)


@contextmanager
def inside(name: str) -> Iterator[None]:
    """Lets this thread, and the processes that it starts, use the network of a namespace."""
    with Path("/proc/thread-self/ns/net").open() as own, Path("/run/netns", name).open() as other:
        _enter(other.fileno())
        try:
            yield
        finally:
            _enter(own.fileno())


def _enter(descriptor: int) -> None:
    if _LIBC.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
