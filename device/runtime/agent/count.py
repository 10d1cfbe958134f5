"""Counts the instructions of an inference with the kernel's performance counters.

On an emulated board this is the only usable cost metric: unlike times, counts are repeatable.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Mapping, Tuple

from edgekit.device.runtime.agent.model import LoadedModel
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
from edgekit.device.runtime.record import Record

_ASK_PERSONALITY, _NO_RANDOM_ADDRESSES = 0xFFFFFFFF, 0x0040000
_ROUNDS = 20


class Instructions(Record):
    """Instructions of one inference: the minimum of `samples`.

    `user_only` is False if the counter cannot exclude the kernel: timer interrupts are then
    included, some tenths of a percent.
    """

    per_inference: int
    user_only: bool
    samples: Tuple[int, ...]


def count(model: LoadedModel, inputs: Mapping[str, Any], repeats: int) -> Instructions:
    """Counts a call of one inference minus a call of zero inferences, which cancels the call
    overhead.

    IncompatibleError if there are no counters.
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
    """Counts the instructions of `once` in excess of `nothing`, `repeats` times.

    Each call is preceded by an uncounted call of `before`.
    """
    _count_instructions(descriptor, before, once)  # faults the memory in
    # Python's own call overhead shrinks during the first rounds.
    around = min(_count_instructions(descriptor, before, nothing) for _ in range(_ROUNDS))
    return tuple(_count_instructions(descriptor, before, once) - around for _ in range(repeats))


def fix_layout() -> None:
    """Restarts this program without address space randomization: memcpy's path depends on
    alignment.

    Does nothing where that is not possible; counts then differ in the sixth digit.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = libc.personality(_ASK_PERSONALITY)
    arguments = getattr(sys, "orig_argv", None)  # Python 3.10 and later
    if before < 0 or before & _NO_RANDOM_ADDRESSES or not arguments:
        return
    if libc.personality(before | _NO_RANDOM_ADDRESSES) >= 0:
        keep_bytecode()
        os.execv(sys.executable, arguments)


def _count_instructions(
    descriptor: int, before: Callable[[], object], call: Callable[[], object]
) -> int:
    before()
    fcntl.ioctl(descriptor, RESET)
    fcntl.ioctl(descriptor, ENABLE)
    call()
    fcntl.ioctl(descriptor, DISABLE)
    found: int = struct.unpack("Q", os.read(descriptor, 8))[0]
    return found


@contextmanager
def counter() -> Iterator[Tuple[int, bool]]:
    """Yields this thread's instruction counter (a descriptor), and whether it excludes the
    kernel."""
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
