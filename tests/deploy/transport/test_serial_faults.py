"""Faulty serial lines deliver the right bytes or a named error in time.

Lines damage, drop, insert and delay bytes, or stop.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from edgekit.host.deploy.transport import LinkLostError
from edgekit.host.deploy.transport.serial import SerialTransport
from edgekit.host.errors import UnreachableError
from tests.support.patience import AMPLE, ends_by_itself
from tests.support.places import few_or_all
from tests.support.tty_board import Faults, TtyBoard, ends

SECONDS = AMPLE
BOOT_BYTES = 13_000  # login and upload of our program
AGAIN_BYTES = 64 << 10  # promise 3: upper limit of bytes resent after a cut

DAMAGES = {
    "kernel messages": Faults(noise=1 / 2000),
    "dropped bytes": Faults(drop=1 / 5000),
    "flipped bits": Faults(flip=1 / 5000),
    "all of it": Faults(noise=1 / 5000, drop=1 / 10_000, flip=1 / 10_000),
}


def incompressible(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.slow
@pytest.mark.parametrize("name", few_or_all(DAMAGES, ["all of it"]))
def test_damage_costs_only_time(tmp_path: Path, name: str) -> None:
    data = incompressible(150_000)
    with TtyBoard(tmp_path, faults=DAMAGES[name]) as board:
        transport = SerialTransport(board.target())
        transport.put(data, "a/file", deadline=SECONDS)
        assert (tmp_path / ".edgekit" / "a" / "file").read_bytes() == data
        assert transport.get("a/file", deadline=SECONDS) == data
        done = transport.run(["sh", "-c", "cat a/file; cat a/file >&2"], deadline=SECONDS)
        assert (done.stdout, done.stderr) == (data, data)
        transport.close()
        assert board.damages > 10


def test_line_of_seven_bits(tmp_path: Path) -> None:
    data = bytes(range(256)) * 300
    with TtyBoard(tmp_path, faults=Faults(seven_bits=True)) as board:
        transport = SerialTransport(board.target())
        transport.put(data, "file", deadline=SECONDS)
        assert transport.get("file", deadline=SECONDS) == data
        transport.close()


def test_slow_line_is_not_taken_for_a_lossy_one(tmp_path: Path) -> None:
    data = incompressible(40_000)
    with TtyBoard(tmp_path, faults=Faults(bytes_per_second=11_520)) as board:
        transport = SerialTransport(board.target())
        assert transport.python
        before = board.to_board
        transport.put(data, "file", deadline=SECONDS)
        assert board.to_board - before < 1.2 * len(data)
        transport.close()


def test_late_transfer_says_how_long_it_takes_and_goes_on(tmp_path: Path) -> None:
    data = incompressible(60_000)
    with TtyBoard(tmp_path, faults=Faults(bytes_per_second=11_520)) as board:
        transport = SerialTransport(board.target())
        assert transport.python
        text = r"file: expected .* within 3 s .* of 60000 bytes transferred at \d+\.\d kB/s; .* res"
        with pytest.raises(UnreachableError, match=text):
            transport.put(data, "file", deadline=3)
        board.faults.bytes_per_second = 0
        sent: list[int] = []
        before = board.to_board
        SerialTransport(board.target()).put(data, "file", deadline=SECONDS, on_bytes=sent.append)
        assert board.to_board - before < BOOT_BYTES + 60_000
        assert sent[0] > 1000  # bytes already on the board
        assert sum(sent) == 60_000
        assert (tmp_path / ".edgekit" / "file").read_bytes() == data


OFFSETS = [1, 400, 2_000, 12_000, 14_000, 60_000, 140_000, 230_000]


@pytest.mark.parametrize("offset", few_or_all(OFFSETS, [400, 60_000]))
def test_cut_line_costs_only_time(tmp_path: Path, offset: int) -> None:
    data = incompressible(200_000)
    sent: list[int] = []
    with TtyBoard(tmp_path, faults=Faults(cut_after=[offset])) as board:
        transport = SerialTransport(board.target())
        transport.put(data, "file", deadline=SECONDS, on_bytes=sent.append)
        assert board.cuts == 1
        assert sum(sent) == len(data)
        assert (tmp_path / ".edgekit" / "file").read_bytes() == data
        assert board.to_board < 1.2 * len(data) + 2 * BOOT_BYTES + AGAIN_BYTES
        assert transport.run(["ls", "-A"], deadline=SECONDS).stdout == b"file\n"
        transport.close()


@pytest.mark.exhaustive
def test_many_cuts_both_ways(tmp_path: Path) -> None:
    data = incompressible(100_000)
    cuts = [40_000, 50_000, 60_000, 70_000, 55_000]
    with TtyBoard(tmp_path, faults=Faults(cut_after=cuts)) as board:
        transport = SerialTransport(board.target())
        got: list[int] = []
        transport.put(data, "file", deadline=SECONDS)
        assert transport.get("file", deadline=SECONDS, on_bytes=got.append) == data
        assert sum(got) == len(data)
        assert board.cuts == 5
        transport.close()


def test_file_that_changed_meanwhile_is_fetched_anew(tmp_path: Path) -> None:
    data = incompressible(100_000)
    file = tmp_path / ".edgekit" / "file"
    with TtyBoard(tmp_path) as board:
        transport = SerialTransport(board.target())
        transport.put(incompressible(90_000), "file", deadline=SECONDS)
        transport.close()
        board.faults.cut_after = [60_000]

        def on_bytes(count: int) -> None:
            if board.cuts and file.read_bytes() != data:
                raise AssertionError("the cut came before the change")
            if not board.cuts and file.stat().st_size == 90_000:
                file.unlink()
                file.write_bytes(data)

        assert transport.get("file", deadline=SECONDS, on_bytes=on_bytes) == data
        assert board.cuts == 1
        transport.close()


def test_what_is_there_of_another_file_is_not_continued(tmp_path: Path) -> None:
    data = incompressible(50_000)
    with TtyBoard(tmp_path) as board:
        transport = SerialTransport(board.target())
        transport.put(data, "file", deadline=SECONDS)
        with pytest.raises(UnreachableError):
            board.faults.bytes_per_second = 11_520
            transport.put(data, "other", deadline=2)
        board.faults.bytes_per_second = 0
        left = next(p for p in (tmp_path / ".edgekit").iterdir() if p.suffix == ".part")
        left.write_bytes(b"damaged" + left.read_bytes()[7:])
        transport.put(data, "other", deadline=SECONDS)
        assert (tmp_path / ".edgekit" / "other").read_bytes() == data
        transport.close()


@pytest.mark.slow
def test_command_is_not_repeated_after_a_cut(tmp_path: Path) -> None:
    with TtyBoard(tmp_path) as board:
        transport = SerialTransport(board.target())
        assert transport.python
        transport.close()
        board.faults.cut_after = [BOOT_BYTES + 20_000]
        command = "echo x >> times; while :; do : 5555; echo 1234567 | gzip >&2; done"
        with pytest.raises(LinkLostError, match=r"found the line socket://.* lost"):
            transport.run(["sh", "-c", command], deadline=SECONDS)
        assert transport.run(["cat", "times"], deadline=SECONDS).stdout == b"x\n"
        assert ends("do : 5555")
        transport.close()


@pytest.mark.parametrize("call", ["put", "get", "run"])
def test_line_that_falls_silent_ends_the_call(tmp_path: Path, call: str) -> None:
    data = os.urandom(500_000)
    with TtyBoard(tmp_path) as board:
        transport = SerialTransport(board.target())
        transport.put(data, "file", deadline=SECONDS)
        board.faults.deaf = True
        with (
            ends_by_itself(),
            pytest.raises(UnreachableError, match=r"expected .* within 2 s|expected '.*' to end"),
        ):
            if call == "put":
                transport.put(data[::-1], "file", deadline=2)
            elif call == "get":
                transport.get("file", deadline=2)
            else:
                transport.run(["cat", "file"], deadline=2)


def test_line_that_does_not_come_back(tmp_path: Path) -> None:
    with TtyBoard(tmp_path, faults=Faults(cut_after=[50_000], gone=True)) as board:
        transport = SerialTransport(board.target())
        with (
            ends_by_itself(),
            # The latter on a machine that is too busy to get to the cut.
            pytest.raises(UnreachableError, match=r"open socket://.* refused|finish within 6 s"),
        ):
            transport.put(os.urandom(100_000), "file", deadline=6)
