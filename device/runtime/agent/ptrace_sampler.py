"""Samples program counters of a child's threads by ptrace, where perf events are refused.

Each stop takes some ten microseconds. Debian refuses events to users by default
(perf_event_paranoid 3) but allows them to trace their own processes; Yama's ptrace_scope 1,
Ubuntu's default, still allows a parent to trace its child.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import struct
import time
from typing import Dict, List, Sequence

from edgekit.device.runtime import features
from edgekit.device.runtime.agent.threads import state_of

_SEIZE, _INTERRUPT, _REGISTERS, _CONTINUE, _DETACH = 0x4206, 0x4207, 0x4204, 7, 17
_GENERAL = 1  # NT_PRSTATUS, the set of general registers
_EVERY_CHILD = 0x40000000  # __WALL: waitpid does not treat threads as children of their own
_REGISTERS_BYTES = 1024
_PERIOD = 0.004  # seconds between rounds, on average
# Index of the program counter among the general registers, and its width.
_COUNTERS = {
    "aarch64": ("Q", 256),
    "armv7l": ("I", 60),
    "riscv64": ("Q", 0),
    "x86_64": ("Q", 128),
}


def stop_threads(threads: Sequence[int], seconds: float) -> Dict[int, List[int]]:
    """Returns program counters by thread id, taken at moments when each thread was running.

    OSError if that is not allowed, or a thread does not exist.
    """
    if features.machine() not in _COUNTERS:
        raise OSError(f"the registers of {features.machine()} are not known")
    found: Dict[int, List[int]] = {thread: [] for thread in threads}
    seized: List[int] = []
    rest = random.Random(0)  # out of step with the model
    try:
        for thread in threads:
            _ptrace(_SEIZE, thread)
            seized.append(thread)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(rest.uniform(0.5, 1.5) * _PERIOD)
            for thread in threads:
                if state_of(thread) == "R":  # otherwise it waits, and the counter shows where
                    _stop(thread)
                    found[thread].append(_program_counter(thread))
                    _ptrace(_CONTINUE, thread)
    finally:
        for thread in seized:
            with contextlib.suppress(OSError):
                _stop(thread)
                _ptrace(_DETACH, thread)
    return found


def _stop(thread: int) -> None:
    _ptrace(_INTERRUPT, thread)
    os.waitpid(thread, _EVERY_CHILD)


def _program_counter(thread: int) -> int:
    layout, offset = _COUNTERS[features.machine()]
    registers = ctypes.create_string_buffer(_REGISTERS_BYTES)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(registers), _REGISTERS_BYTES)
    _ptrace(_REGISTERS, thread, _GENERAL, ctypes.addressof(vector))
    found: int = struct.unpack_from(layout, registers, offset)[0]
    return found


def _ptrace(request: int, thread: int, address: int = 0, data: int = 0) -> None:
    pointer = ctypes.c_void_p
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, pointer, pointer)
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, thread, address, data) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
