"""Checks a board: its reported properties against its profile and the needs of a deploy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from edgekit.device.runtime.agent.clusters import Cluster, ranges
from edgekit.device.runtime.agent.probe import Probe
from edgekit.host.deploy.api import connect
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.doctor.propose import propose
from edgekit.host.deploy.doctor.types import Finding, Verdict
from edgekit.host.deploy.release import BoardStatus, c_library_advice, folder_advice, probe
from edgekit.host.errors import EdgekitError, InputError
from edgekit.kb.targets.board import BoardProfile, board_names, load_board

_OLDEST_PYTHON = (3, 9)
_MEMORY_BYTES = 64 << 20
_DISK_BYTES = 64 << 20
_CLOCK_SECONDS = 300
_COUNTING_ALLOWED = 2  # highest perf_event_paranoid at which users may count their own processes
_SLOWEST = "powersave"  # the governor of the lowest clock, except on x86, where it manages its own
_MORE_RIGHTS = (
    "for schedulers and priorities, in /etc/security/limits.conf on the board: USER - rtprio 21 "
    "and USER - nice -20; reboot it"
)
_SAME_MEMORY = 0.6  # the kernel and firmware reserve part of the memory on the data sheet


def examine_board(board: str, profile: BoardProfile) -> Iterator[Finding]:
    """Yields findings about the board if it is reachable; InputError if it is unknown."""
    try:
        device = connect(board)
    except InputError as error:
        if board not in board_names():
            raise
        text = f"{profile.description}; a profile to compile for; no board has that name yet"
        yield Finding(f"board {board}", Verdict.INFO, text, _advice(error))
        return
    yield from examine_device(device, profile)


def examine_device(device: Board, profile: BoardProfile) -> Iterator[Finding]:
    """Yields findings about a known board; being unreachable is one of them."""
    board = device.name
    try:
        found = probe(device)
    except EdgekitError as error:
        yield Finding(f"board {board}", Verdict.FAIL, _without_advice(error), _advice(error))
        return
    yield Finding(f"board {board}", Verdict.OK, f"{profile.description}; answers")
    yield from compare(found, profile, time.time(), board)
    yield from _check_installed(device)


def _check_installed(device: Board) -> Iterator[Finding]:
    """Checks the releases, and what their applications were denied."""
    try:
        found = device.status()
    except EdgekitError as error:
        yield Finding("releases", Verdict.FAIL, _without_advice(error), _advice(error))
        return
    yield _check_releases(found)
    for each in (device, *(device.named(name) for name in found.named)):
        with contextlib.suppress(InputError):  # it has no application
            state = each.application_status()
            if state.denied:
                text = f"{state.name}: {state.denied}"
                yield Finding("application", Verdict.INFO, text, _MORE_RIGHTS)


def _check_releases(found: BoardStatus) -> Finding:
    """Compares every installed file with its SHA-256."""
    every = (found, *found.named.values())
    there = [info for one in every for info in (one.current, one.previous) if info]
    for info in there:
        if info.damage:
            return Finding("releases", Verdict.FAIL, f"{info.id}: {info.damage}", "deploy it again")
    if not there:
        return Finding("releases", Verdict.OK, "nothing deployed")
    return Finding("releases", Verdict.OK, f"{', '.join(info.id for info in there)}, intact")


def compare(
    found: Probe, profile: BoardProfile, now: float, board: str = "BOARD"
) -> Iterator[Finding]:
    """Compares the probe of `board` with its profile; `now` is the host's clock."""
    yield _check_machine(found, profile)
    yield _check_features(found, profile)
    yield _check_cores(found, profile)
    for cluster in found.clusters:
        yield _check_cluster(cluster, found.machine)
    yield _check_memory(found, profile)
    yield _check_disk(found)
    yield _check_folder(found, board)
    yield _check_c_library(found)
    yield _check_python(found)
    yield _check_signatures(found)
    yield _check_clock(found, now)
    yield _check_perf(found)


def _check_machine(found: Probe, profile: BoardProfile) -> Finding:
    seen = f"{found.machine}, {', '.join(found.core_names) or 'unknown core'}"
    if found.machine != profile.arch:
        text = f"{seen}; profile {profile.name} is for {profile.arch}"
        fix = _another_profile(found)
        if (found.machine, profile.arch) == ("armv7l", "aarch64"):
            fix = "install a 64-bit system, which is faster, or give the board the profile a7"
        return Finding("machine", Verdict.FAIL, text, fix)
    if profile.core and found.core_names and profile.core not in found.core_names:
        text = f"{seen}; profile {profile.name} is tuned for {profile.core}"
        return Finding("machine", Verdict.WARN, text, _another_profile(found))
    return Finding("machine", Verdict.OK, seen)


def _another_profile(found: Probe) -> str:
    return f"give the board the profile of its core ({found.machine}): edgekit boards"


def _check_features(found: Probe, profile: BoardProfile) -> Finding:
    missing = sorted(set(profile.features) - set(found.features))
    length = f", vectors of {found.vlen_bits} bits" if found.vlen_bits else ""
    if missing:
        text = f"no {', '.join(missing)}{length}; bundles for {profile.name} are refused"
        return Finding("cpu features", Verdict.FAIL, text, _another_profile(found))
    if profile.vlen_bits > (found.vlen_bits or 0):
        text = f"vectors of {found.vlen_bits or 0} bits; bundles need {profile.vlen_bits}"
        return Finding("cpu features", Verdict.FAIL, text, _another_profile(found))
    if (longer := propose(found)) and load_board(longer.profile).vlen_bits > profile.vlen_bits:
        used = f"bundles for {profile.name} use {profile.vlen_bits or 'none'}"
        fix = f"give the board the profile {longer.profile}, which uses more of them"
        return Finding(
            "cpu features", Verdict.INFO, f"vectors of {found.vlen_bits} bits; {used}", fix
        )
    names = ", ".join(profile.features) or "nothing special needed"
    if extras := sorted(set(profile.extras) - set(found.features)):
        text = f"{names}{length}; does not report {', '.join(extras)}, which --precision needs"
        fix = "a newer kernel, if the core has it; without --precision nothing is missing"
        return Finding("cpu features", Verdict.INFO, text, fix)
    names = ", ".join((*profile.features, *profile.extras)) or names
    return Finding("cpu features", Verdict.OK, f"{names}{length}")


def _check_cores(found: Probe, profile: BoardProfile) -> Finding:
    seen = f"{found.cores} usable"
    if found.cores < profile.cores:
        text = f"{seen}; profile {profile.name} has {profile.cores}"
        fix = "nothing, if the board has no more; else check its boot options (maxcpus, isolcpus)"
        return Finding("cores", Verdict.INFO, text, fix)
    return Finding("cores", Verdict.OK, seen)


def _check_cluster(cluster: Cluster, machine: str) -> Finding:
    """Reports a cluster's cores, clock and governor, and whether all of its cores may be used."""
    check = "cluster" if cluster.name == "all" else f"cluster {cluster.name}"
    clock = "" if cluster.max_mhz is None else f" at up to {cluster.max_mhz:.0f} MHz"
    governor = f", governor {cluster.governor}" if cluster.governor else ""
    numbers = f" ({ranges(cluster.cores)})"
    seen = f"{len(cluster.cores)} x {cluster.core or 'core'}{numbers}{clock}{governor}"
    if len(cluster.usable) < len(cluster.cores):
        text = f"{seen}; {len(cluster.usable)} usable: models run on those, with as many threads"
        fix = "nothing, if intended; otherwise check the container's or session's cpuset"
        return Finding(check, Verdict.INFO, text, fix)
    if machine != "x86_64" and _SLOWEST in (cluster.governor or "").split(", "):
        text = f"{seen}; {_SLOWEST} keeps the clock low"
        folder = f"/sys/devices/system/cpu/cpu{cluster.cores[0]}/cpufreq"
        fix = f"on the board: echo schedutil | sudo tee {folder}/scaling_governor"
        return Finding(check, Verdict.INFO, text, fix)
    return Finding(check, Verdict.OK, seen)


def _check_memory(found: Probe, profile: BoardProfile) -> Finding:
    if found.memory_bytes is None or found.available_bytes is None:
        return Finding("memory", Verdict.WARN, "not reported", "mount /proc on it")
    seen = f"{_format_mib(found.available_bytes)} of {_format_mib(found.memory_bytes)} available"
    if found.available_bytes < _MEMORY_BYTES:
        return Finding("memory", Verdict.WARN, seen, "stop other programs on the board")
    if found.memory_bytes < _SAME_MEMORY * profile.memory_bytes:
        text = f"{seen}; profile {profile.name} has {_format_mib(profile.memory_bytes)}"
        return Finding("memory", Verdict.INFO, text, "nothing, as long as the models fit")
    return Finding("memory", Verdict.OK, seen)


def _check_disk(found: Probe) -> Finding:
    seen = f"{_format_mib(found.disk_free_bytes)} free"
    if found.disk_free_bytes < _DISK_BYTES:
        return Finding("disk", Verdict.WARN, seen, "free some space on the board's disk")
    return Finding("disk", Verdict.OK, seen)


def _check_folder(found: Probe, board: str) -> Finding:
    if found.folder_trouble:
        text = f"{found.folder}, {found.folder_trouble}; releases cannot run there"
        return Finding("folder", Verdict.FAIL, text, folder_advice(board, found))
    return Finding("folder", Verdict.OK, f"{found.folder}, writable, files may be executed")


def _check_c_library(found: Probe) -> Finding:
    if fix := c_library_advice(found):
        return Finding("C library", Verdict.FAIL, f"{found.c_library}; no model can run", fix)
    return Finding("C library", Verdict.OK, found.c_library or "not reported, or compatible")


def _check_python(found: Probe) -> Finding:
    version = tuple(int(n) for n in found.python.split(".")[:2])
    if version < _OLDEST_PYTHON:
        fix = "install Python 3.9 or newer on the board"
        return Finding("board python", Verdict.FAIL, found.python, fix)
    return Finding("board python", Verdict.OK, found.python)


def _check_signatures(found: Probe) -> Finding:
    if found.ssh_keygen:
        return Finding("signatures", Verdict.OK, "ssh-keygen verifies them")
    text = "no ssh-keygen, so the board refuses bundles unless it was added with --allow-unsigned"
    fix = "on the board: apt-get install openssh-client"
    return Finding("signatures", Verdict.WARN, text, fix)


def _check_clock(found: Probe, now: float) -> Finding:
    off = found.clock - now
    if abs(off) > _CLOCK_SECONDS:
        date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(found.clock))
        text = f"{date}, {_format_duration(abs(off))} {'ahead' if off > 0 else 'behind'}"
        fix = f"nothing breaks; to correct dates, on the board: sudo date -s @{now:.0f}"
        return Finding("clock", Verdict.WARN, text, fix)
    return Finding("clock", Verdict.OK, f"{abs(off):.1f} s from this machine's")


def _check_perf(found: Probe) -> Finding:
    level = found.perf_event_paranoid
    if level is None:
        text = "the kernel has no perf; instructions cannot be counted"
        return Finding("perf", Verdict.INFO, text, "a kernel with CONFIG_PERF_EVENTS")
    if level > _COUNTING_ALLOWED:
        text = f"perf_event_paranoid {level}; instructions cannot be counted by users"
        fix = "on the board: sudo sysctl kernel.perf_event_paranoid=2"
        return Finding("perf", Verdict.INFO, text, fix)
    return Finding("perf", Verdict.OK, f"perf_event_paranoid {level}")


def _format_duration(seconds: float) -> str:
    for unit, length in (("years", 31557600), ("days", 86400), ("hours", 3600)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 60:.0f} minutes"


def _format_mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"


def _advice(error: EdgekitError) -> str:
    """Returns the last part of the message, which is the next step."""
    return str(error).rpartition("; ")[2]


def _without_advice(error: EdgekitError) -> str:
    return str(error).rpartition("; ")[0] or str(error)
