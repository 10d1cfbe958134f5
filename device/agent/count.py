"""Counts the instructions of an inference with the kernel's performance counters.

Counts are what an emulated board can say of a model's cost: unlike its times, they repeat.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, Tuple

from edgekit.device import features
from edgekit.device.agent.model import Model
from edgekit.device.bytecode import keep_bytecode
from edgekit.device.errors import IncompatibleError

_SYSCALLS = {"aarch64": 241, "armv7l": 364, "riscv64": 241, "x86_64": 298}
_ATTRIBUTE_BYTES = 128  # of perf_event_attr; the kernel takes any size it knows
_FLAGS_OFFSET = 40
_HARDWARE, _INSTRUCTIONS = 0, 1
_DISABLED, _NO_KERNEL, _NO_HYPERVISOR = 1, 1 << 5, 1 << 6
_ASK_PERSONALITY, _NO_RANDOM_ADDRESSES = 0xFFFFFFFF, 0x0040000
_ROUNDS = 20
_ENABLE, _DISABLE, _RESET = 0x2400, 0x2401, 0x2403


@dataclass(frozen=True)
class Instructions:
    """Instructions of one inference; `samples` are all that were measured, the least one counts.

    `user_only` is False where the counter cannot leave out the kernel: its timer interrupts are
    then part of the count, some tenths of a percent.
    """

    per_inference: int
    user_only: bool
    samples: Tuple[int, ...]


def count(model: Model, inputs: Mapping[str, Any], repeats: int) -> Instructions:
    """Counts a call for one inference, less a call for none: the way into the library cancels out.

    IncompatibleError where there are no counters.
    """
    model.set_inputs(inputs)
    with counter() as (descriptor, user_only):
        samples = count_calls(
            descriptor, model.prepared_calls(0), model.prepared_calls(1), repeats, model.reset
        )
    return Instructions(min(samples), user_only, samples)


def count_calls(
    descriptor: int,
    nothing: Callable[[], object],
    once: Callable[[], object],
    repeats: int,
    before: Callable[[], object] = lambda: None,
) -> Tuple[int, ...]:
    """Instructions of what `once` does and `nothing` does not, measured `repeats` times.

    Each call follows one of `before`, which is not counted.
    """
    _measure(descriptor, before, once)  # faults the memory in
    # Python's own way to the call gets shorter in the first rounds.
    around = min(_measure(descriptor, before, nothing) for _ in range(_ROUNDS))
    return tuple(_measure(descriptor, before, once) - around for _ in range(repeats))


def fix_layout() -> None:
    """Starts this program anew without random addresses: copies take other paths by alignment.

    Nothing happens where that is not possible; counts then differ in the sixth digit.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = libc.personality(_ASK_PERSONALITY)
    arguments = getattr(sys, "orig_argv", None)  # Python 3.10 and later
    if before < 0 or before & _NO_RANDOM_ADDRESSES or not arguments:
        return
    if libc.personality(before | _NO_RANDOM_ADDRESSES) >= 0:
        keep_bytecode()
        os.execv(sys.executable, arguments)


def _measure(descriptor: int, before: Callable[[], object], call: Callable[[], object]) -> int:
    before()
    fcntl.ioctl(descriptor, _RESET)
    fcntl.ioctl(descriptor, _ENABLE)
    call()
    fcntl.ioctl(descriptor, _DISABLE)
    found: int = struct.unpack("Q", os.read(descriptor, 8))[0]
    return found


@contextmanager
def counter() -> Iterator[Tuple[int, bool]]:
    """(descriptor of this thread's instruction counter, whether it leaves out the kernel)."""
    descriptor, user_only = _open(_DISABLED | _NO_KERNEL | _NO_HYPERVISOR), True
    if descriptor < 0:
        descriptor, user_only = _open(_DISABLED), False
    if descriptor < 0:
        raise IncompatibleError(
            f"expected an instruction counter, found: {os.strerror(ctypes.get_errno())}; "
            "on a virtual board: edgekit board up NAME --counting"
        )
    try:
        yield descriptor, user_only
    finally:
        os.close(descriptor)


def _open(flags: int) -> int:
    attribute = bytearray(_ATTRIBUTE_BYTES)
    struct.pack_into("IIQ", attribute, 0, _HARDWARE, _ATTRIBUTE_BYTES, _INSTRUCTIONS)
    struct.pack_into("Q", attribute, _FLAGS_OFFSET, flags)
    number = _SYSCALLS.get(features.machine())
    if number is None:
        return -1
    libc = ctypes.CDLL(None, use_errno=True)
    block = (ctypes.c_char * _ATTRIBUTE_BYTES).from_buffer(attribute)
    this_thread, any_cpu = 0, -1
    return int(libc.syscall(number, block, this_thread, any_cpu, -1, 0))
