"""Thread sampling, and symbolization of addresses."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.hotspots import watch, watch_threads
from edgekit.device.runtime.agent.perf_events import sample_threads
from edgekit.device.runtime.agent.ptrace_sampler import stop_threads
from edgekit.device.runtime.agent.symbols import UNKNOWN, CodePlace, Symbols
from edgekit.device.runtime.agent.threads import CpuTime, threads_of
from edgekit.device.runtime.errors import DeviceError
from tests.support.patience import PATIENCE


@contextmanager
def _busy_child() -> Iterator[int]:
    """A child process in a busy loop."""
    process = os.fork()
    if process == 0:
        while True:
            sum(range(10000))
    try:
        yield process
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)


@pytest.mark.parametrize("take", [sample_threads, stop_threads])
def test_a_busy_child_is_found_in_mapped_code(take: object) -> None:
    with _busy_child() as process:
        addresses: list[int] = []
        end = time.monotonic() + PATIENCE  # the child gets little of a busy processor
        while len(addresses) <= 5 and time.monotonic() < end:
            try:
                addresses += take(threads_of(process), 0.5)[process]  # type: ignore[operator]
            except PermissionError as error:  # tracing is forbidden here
                pytest.skip(str(error))
        symbols = Symbols(process)
        libraries = {symbols.at(address).library for address in addresses}
        assert len(addresses) > 5 and UNKNOWN not in libraries
        assert os.waitpid(process, os.WNOHANG) == (0, 0)  # the child is still running


def test_sampling_ended_threads_is_an_error() -> None:
    process = os.fork()
    if process == 0:
        os._exit(0)
    os.waitpid(process, 0)
    for take in (sample_threads, stop_threads):
        with pytest.raises(OSError):
            take([process], 0.1)
    for look in (CpuTime, Symbols):
        with pytest.raises(OSError):
            look(process)


def test_functions_have_their_names() -> None:
    libc = ctypes.CDLL(None)
    address = ctypes.cast(libc.qsort, ctypes.c_void_p).value or 0
    symbols = Symbols(os.getpid())
    found = symbols.at(address)
    assert found.function == "qsort" and found.library.startswith(("libc.so", "libc-"))
    assert symbols.at(1) == CodePlace(UNKNOWN, UNKNOWN)


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(58), b"\xff" * 999]
)
def test_damaged_files_have_no_names(content: bytes, tmp_path: Path) -> None:
    from edgekit.device.runtime.agent.symbols import _read_elf

    path = tmp_path / "model.so"
    path.write_bytes(content)
    elf = _read_elf(path)
    assert elf is None or elf.at(0) == UNKNOWN


@pytest.mark.slow
def test_an_account_knows_who_works() -> None:
    with _busy_child() as process, _busy_child() as other:
        time.sleep(0.1)
        account = CpuTime(process)
        time.sleep(1)
        usage = account.usage()
        (thread,) = usage.threads
        assert thread.thread == process and thread.running > 2
        assert thread.running + (thread.delayed or 0) + thread.asleep == pytest.approx(100)
        assert thread.asleep < 50  # it is always runnable
        if len(usage.others) < 3:  # on a busy machine, other processes may rank higher
            assert other in [program.process for program in usage.others]


def test_work_that_fails_says_how() -> None:
    def broken() -> object:
        raise ValueError("no such kernel")

    with pytest.raises(DeviceError, match="found ValueError: no such kernel"):
        watch(broken, 0.5)
    with pytest.raises(DeviceError, match="found ValueError: no such kernel"):
        watch_threads(lambda: broken)
