"""Compares uploads over SSH with OpenSSH's own `sftp`, alternating on the same server.

    python -m tests.long.upload_rate [--rounds 7] [--megabytes 50] [--least 0.8]

Ours includes login, hashing and fsync; sftp's includes its login. The medians are compared. Exit
code 1 if ours is slower than `--least` of sftp's rate.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from edgekit.host.deploy.transport.ssh import SshTarget, SshTransport
from tests.support.sshd import Sshd, running_sshd

_SECONDS = 120.0


def ours(server: Sshd, data: bytes, name: str) -> None:
    target = SshTarget(
        "board", server.host, server.port, server.user, server.identity, server.host_key
    )
    transport = SshTransport(target)
    transport.put(data, name, deadline=_SECONDS)
    transport.close()


def theirs(server: Sshd, file: Path) -> None:
    known = server.folder / "known_hosts"
    known.write_text(f"[{server.host}]:{server.port} {server.host_key}\n")
    command = ["sftp", "-q", "-F", "/dev/null", "-P", str(server.port), "-i", str(server.identity)]
    command += ["-o", f"UserKnownHostsFile={known}", "-o", "IdentitiesOnly=yes", "-b", "-"]
    command += [f"{server.user}@{server.host}"]
    subprocess.run(command, input=f"put {file} theirs\n".encode(), check=True, capture_output=True)


def seconds(call: Callable[[], None]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def run(folder: Path, rounds: int, size: int, least: float) -> int:
    file = folder / "data"
    times: tuple[list[float], list[float]] = ([], [])
    with running_sshd(folder / "sshd") as server:
        for number in range(rounds):
            data = os.urandom(size)  # fresh data: known content would not be sent
            file.write_bytes(data)
            times[0].append(seconds(lambda data=data, n=number: ours(server, data, f"ours{n}")))
            times[1].append(seconds(lambda: theirs(server, file)))
    mine, other = (size / 1e6 / statistics.median(t) for t in times)
    ratio = mine / other
    print(f"{rounds} uploads of {size / 1e6:.0f} MB: {mine:.0f} MB/s, sftp {other:.0f} MB/s: "
          f"{ratio:.0%}, expected {least:.0%} or more")  # fmt: skip
    return 0 if ratio >= least else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--least", type=float, default=0.8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        size = arguments.megabytes * 1_000_000
        return run(Path(folder), arguments.rounds, size, arguments.least)


if __name__ == "__main__":
    sys.exit(main())
