"""Linux performance events without the perf tool: the counter for `count`, and thread sampling.

Up to perf_event_paranoid 2, an ordinary user may sample user code of their own processes. Struct
layouts are from linux/perf_event.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import struct
import time
from typing import Dict, Iterator, List, Sequence

from edgekit.device.runtime import features

_SYSCALLS = {"aarch64": 241, "armv7l": 364, "riscv64": 241, "x86_64": 298}
_ATTRIBUTE_BYTES = 128  # of perf_event_attr; the kernel accepts any size it knows
_FLAGS_OFFSET = 40
_HARDWARE, _SOFTWARE = 0, 1
_INSTRUCTIONS, _CPU_CLOCK = 0, 0
DISABLED, NO_KERNEL, NO_HYPERVISOR = 1, 1 << 5, 1 << 6
ENABLE, DISABLE, RESET = 0x2400, 0x2401, 0x2403
_ADDRESS = 1  # of sample_type: a sample is the program counter and nothing else
_SAMPLE = 9  # type of a record
_HEAD_OFFSET = 1024  # of data_head, the kernel's write position, in the header page
_PERIOD_NS = 1_999_973  # of CPU time: 500 Hz, out of step with any 1 ms activity
_RECORD_BYTES = 16


def open_counter(flags: int) -> int:
    """Opens a counter of this thread's instructions; returns -1, with errno, if refused."""
    return _open_event(0, _HARDWARE, _INSTRUCTIONS, flags, 0)


def sample_threads(threads: Sequence[int], seconds: float) -> Dict[int, List[int]]:
    """Returns program counters by thread id, sampled while the thread spends CPU time in user code.

    OSError if that is not allowed, or a thread does not exist.
    """
    size = mmap.PAGESIZE
    while size < 1.5 * seconds * 1e9 / _PERIOD_NS * _RECORD_BYTES:
        size *= 2
    with contextlib.ExitStack() as stack:
        opened = {thread: stack.enter_context(_open_ring(thread, size)) for thread in threads}
        for descriptor, _ in opened.values():
            fcntl.ioctl(descriptor, ENABLE)
        time.sleep(seconds)
        # Stop all samplers before reading, so that no record is partially written.
        for descriptor, _ in opened.values():
            fcntl.ioctl(descriptor, DISABLE)
        return {thread: _read_addresses(ring) for thread, (_, ring) in opened.items()}


@contextlib.contextmanager
def _open_ring(thread: int, size: int) -> Iterator["tuple[int, mmap.mmap]"]:
    """Yields a stopped sampler of a thread, and its ring buffer."""
    descriptor = _open_event(
        thread, _SOFTWARE, _CPU_CLOCK, DISABLED | NO_KERNEL | NO_HYPERVISOR, _PERIOD_NS
    )
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    try:
        with mmap.mmap(descriptor, mmap.PAGESIZE + size) as ring:
            yield descriptor, ring
    finally:
        os.close(descriptor)


def _read_addresses(ring: mmap.mmap) -> List[int]:
    (written,) = struct.unpack_from("Q", ring, _HEAD_OFFSET)
    end = min(mmap.PAGESIZE + written, len(ring))  # the kernel drops records that do not fit
    at, found = mmap.PAGESIZE, []
    while at + 8 <= end:
        kind, _, size = struct.unpack_from("IHH", ring, at)
        if kind == _SAMPLE and at + _RECORD_BYTES <= end:
            found.append(int(struct.unpack_from("Q", ring, at + 8)[0]))
        if size < 8:
            break
        at += size
    return found


def _open_event(thread: int, kind: int, config: int, flags: int, period: int) -> int:
    """Opens an event of a thread (0: this one) on any CPU; returns -1, with errno, if refused."""
    attribute = bytearray(_ATTRIBUTE_BYTES)
    fields = (kind, _ATTRIBUTE_BYTES, config, period, _ADDRESS if period else 0)
    struct.pack_into("IIQQQ", attribute, 0, *fields)
    struct.pack_into("Q", attribute, _FLAGS_OFFSET, flags)
    number = _SYSCALLS.get(features.machine())
    if number is None:
        return -1
    libc = ctypes.CDLL(None, use_errno=True)
    block = (ctypes.c_char * _ATTRIBUTE_BYTES).from_buffer(attribute)
    return int(libc.syscall(number, block, thread, -1, -1, 0))
