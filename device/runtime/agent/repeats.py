"""Repeats inferences of a C program with its release's float model (kernels/application/repeats.c).

The process that does it shares memory with the program and talks to it over a socket, in messages
of 64-bit numbers. First it sends the bytes of the states, the numbers of inputs and outputs, and
the bytes of each. When the program has put the states, inputs and outputs of an inference there, in
this order, it sends the number of inferences since its last message, their nanoseconds, and those
that it spent on copies. The process answers how many inferences to skip, and up to how many
nanoseconds of all inferences none is to be repeated. It ends with the socket.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import socket
import struct
import sys
from typing import List, Sequence

from edgekit.device.runtime.agent.integrity import open_intact
from edgekit.device.runtime.agent.manifest import Variant
from edgekit.device.runtime.agent.shadow import Shadow, shadow_for
from edgekit.device.runtime.agent.store import Store, manifest_of
from edgekit.device.runtime.errors import IncompatibleError

_DONE, _WISH = struct.Struct("=QQQ"), struct.Struct("=QQ")
_LEAST_NICE = 19


def start(store: Store, release: str, memory: int, link: int) -> None:
    """Starts the process, which outlives this one, with the descriptors of the memory and the
    socket; IncompatibleError if there is nothing to repeat with."""
    files = open_intact(store.releases / release)
    manifest = manifest_of(files)
    shadow = shadow_for(store, manifest, files)
    if shadow is None:
        raise IncompatibleError(
            f"release {release}: expected a float model, and sampling on, found none, or off"
        )
    variant, program = manifest.every_variant()[0], socket.socket(fileno=os.dup(link))
    sizes = _sizes(variant)
    os.ftruncate(memory, max(sum(sizes), 1))
    block = mmap.mmap(memory, max(sum(sizes), 1))
    about = (sizes[0], len(variant.inputs), len(variant.outputs), *sizes[1:])
    program.send(struct.pack(f"={len(about)}Q", *about))
    if os.fork():
        program.close()
        _close((link,))
        return
    try:
        _close((memory, link, sys.stderr.fileno()))
        _leave()
        serve(shadow, program, block, sizes, len(variant.inputs))
    finally:
        os._exit(0)


def serve(
    shadow: Shadow, program: socket.socket, block: mmap.mmap, sizes: Sequence[int], inputs: int
) -> None:
    """Repeats what the program asks for until it closes its end. `sizes`: bytes of the states and
    of each tensor in the block, `inputs` of which are inputs."""
    with contextlib.suppress(ConnectionError):
        while message := program.recv(_DONE.size):
            shadow.count(*_DONE.unpack(message))
            state, *tensors = _parts(block, sizes)
            shadow.repeat_now(tensors[:inputs], tensors[inputs:], state)
            if (until := shadow.next_ns()) is None:
                break
            program.send(_WISH.pack(random.randint(0, 2 * (shadow.every - 1)), until))
    shadow.close()


def _sizes(variant: Variant) -> List[int]:
    specs = (*variant.inputs, *variant.outputs)
    return [variant.memory.state_bytes, *(spec.bytes for spec in specs)]


def _parts(block: mmap.mmap, sizes: Sequence[int]) -> List[bytes]:
    found, start = [], 0
    for size in sizes:
        found.append(block[start : start + size])
        start += size
    return found


def _close(descriptors: Sequence[int]) -> None:
    """Lets go of standard descriptors, which stay valid."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _leave() -> None:
    """Leaves the program's process group, which its supervisor ends, and takes only the time that
    nobody else wants."""
    os.setsid()
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError:  # musl
        os.nice(_LEAST_NICE)
