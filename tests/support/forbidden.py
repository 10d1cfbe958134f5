"""Runs a command whose processes are denied some system calls, as in a restricted container.

python forbidden.py perf_event_open,ptrace COMMAND...
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

NUMBERS = {
    "perf_event_open": {"x86_64": 298, "aarch64": 241, "riscv64": 241},
    "ptrace": {"x86_64": 101, "aarch64": 117, "riscv64": 117},
    "sched_setscheduler": {"x86_64": 144, "aarch64": 119, "riscv64": 119},
    "setpriority": {"x86_64": 141, "aarch64": 140, "riscv64": 140},
}
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # classic BPF: load word, jump if equal, return
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO plus errno
_EACCES = 13
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2


def forbid(names: list[str]) -> None:
    """From now on these calls fail with EACCES in this process and its children."""
    rules = [(_LOAD, 0, 0, 0)]
    for name in names:
        number = NUMBERS[name][platform.machine()]
        rules += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | _EACCES)]
    rules.append((_RETURN, 0, 0, _ALLOW))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    filters = struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    refused = libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if refused or libc.prctl(_SECCOMP, _FILTER, ctypes.c_char_p(filters), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    forbid(sys.argv[1].split(","))
    os.execvp(sys.argv[2], sys.argv[2:])
