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

from edgekit.device.runtime.agent.model import Model
from edgekit.device.runtime.agent.perf_events import (
    DISABLE,
    DISABLED,
    ENABLE,
    NO_HYPERVISOR,
    NO_KERNEL,
    RESET,
    open_counter,
)
from edgekit.device.runtime.bytecode import keep_bytecode
from edgekit.device.runtime.errors import IncompatibleError

_ASK_PERSONALITY, _NO_RANDOM_ADDRESSES = 0xFFFFFFFF, 0x0040000
_ROUNDS = 20


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
    fcntl.ioctl(descriptor, RESET)
    fcntl.ioctl(descriptor, ENABLE)
    call()
    fcntl.ioctl(descriptor, DISABLE)
    found: int = struct.unpack("Q", os.read(descriptor, 8))[0]
    return found


@contextmanager
def counter() -> Iterator[Tuple[int, bool]]:
    """(descriptor of this thread's instruction counter, whether it leaves out the kernel)."""
    descriptor, user_only = open_counter(DISABLED | NO_KERNEL | NO_HYPERVISOR), True
    if descriptor < 0:
        descriptor, user_only = open_counter(DISABLED), False
    if descriptor < 0:
        raise IncompatibleError(
            f"expected an instruction counter, found: {os.strerror(ctypes.get_errno())}; "
            "on a virtual board: edgekit board up NAME --count-instructions"
        )
    try:
        yield descriptor, user_only
    finally:
        os.close(descriptor)
