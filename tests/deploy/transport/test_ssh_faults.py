"""Links that are cut, silent or slow; full disks; killed servers."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable

import pytest

from edgekit.host.deploy.transport import LinkLostError
from edgekit.host.deploy.transport.ssh import SshTransport
from edgekit.host.errors import TransferError, UnreachableError
from tests.support.patience import AMPLE, ends_by_itself, until
from tests.support.places import few_or_all
from tests.support.proxy import Fault, running_proxy, silent_port
from tests.support.sshd import Sshd

pytestmark = pytest.mark.sshd

Connect = Callable[..., SshTransport]
SECONDS = AMPLE
SIZE = 3_000_000
RESENT = 65536
OVERHEAD = 6_000  # login and framing, in bytes per connection
FRAMES = 0.01  # headers, padding and MACs, as a share of the file


def parts(server: Sshd) -> list[str]:
    return [p.name for p in (server.home / ".edgekit" / "incoming").glob(".part-*")]


UPLOADED = [
    1, 22, 700, 2_000, 2_500, 3_000, 4_500, 6_000, 40_000, 70_000, 100_001, 131_072, 262_143,
    500_000, 999_999, 1_500_000, 2_222_222, 2_999_000, 3_004_000, 3_010_000, 3_015_000,
]  # fmt: skip


@pytest.mark.parametrize("offset", few_or_all(UPLOADED, [1, 2_500, 100_001, 1_500_000, 3_004_000]))
def test_upload_goes_on_after_a_cut(server: Sshd, connect: Connect, offset: int) -> None:
    data = os.urandom(SIZE)
    sent: list[int] = []
    # The first login finds Python; cut only what follows it.
    with running_proxy(server.host, server.port) as proxy:
        transport = connect(port=proxy.port)
        transport.run(["true"], deadline=SECONDS)
        proxy.faults.append(Fault(offset))
        proxy.cut()
        before = proxy.up
        transport.put(data, "file", deadline=SECONDS, on_bytes=sent.append)
        logins = proxy.connections - 1
        wire = proxy.up - before
    assert (server.home / ".edgekit" / "file").read_bytes() == data
    assert sum(sent) == SIZE
    assert wire - SIZE * (1 + FRAMES) - logins * OVERHEAD < RESENT
    assert parts(server) == []


DOWNLOADED = [1, 1_000, 3_000, 5_000, 40_000, 131_072, 500_000, 1_500_000, 2_999_000, 3_004_000]


@pytest.mark.parametrize("offset", few_or_all(DOWNLOADED, [1, 5_000, 500_000, 3_004_000]))
def test_download_goes_on_after_a_cut(server: Sshd, connect: Connect, offset: int) -> None:
    data = os.urandom(SIZE)
    got: list[int] = []
    with running_proxy(server.host, server.port) as proxy:
        transport = connect(port=proxy.port)
        transport.put(data, "file", deadline=SECONDS)
        proxy.faults.append(Fault(offset, "down"))
        proxy.cut()
        before = proxy.down
        assert transport.get("file", deadline=SECONDS, on_bytes=got.append) == data
        logins = proxy.connections - 1
        wire = proxy.down - before
    assert sum(got) == SIZE
    assert wire - SIZE * (1 + FRAMES) - logins * OVERHEAD < RESENT


@pytest.mark.slow
def test_many_cuts_in_a_row(server: Sshd, connect: Connect) -> None:
    data = os.urandom(SIZE)
    with running_proxy(server.host, server.port) as proxy:
        transport = connect(port=proxy.port)
        transport.run(["true"], deadline=SECONDS)
        proxy.faults += [Fault(300_000)] * 9
        proxy.cut()
        transport.put(data, "file", deadline=SECONDS)
        assert proxy.connections >= 11
    assert (server.home / ".edgekit" / "file").read_bytes() == data


def test_upload_goes_on_in_another_process(server: Sshd, connect: Connect) -> None:
    data = os.urandom(SIZE)

    def pull_the_plug(count: int) -> None:
        seen.append(count)
        if sum(seen) > SIZE // 2:
            raise KeyboardInterrupt

    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        connect().put(data, "file", deadline=SECONDS, on_bytes=pull_the_plug)
    assert len(parts(server)) == 1
    with running_proxy(server.host, server.port) as proxy:
        connect(port=proxy.port).put(data, "elsewhere", deadline=SECONDS)
        assert proxy.up < SIZE // 2 + RESENT + SIZE * FRAMES + OVERHEAD
    assert (server.home / ".edgekit" / "elsewhere").read_bytes() == data
    assert parts(server) == []


def test_damaged_part_is_not_built_upon(server: Sshd, connect: Connect) -> None:
    data = os.urandom(SIZE)

    def pull_the_plug(_: int) -> None:
        raise KeyboardInterrupt

    transport = connect()
    for damage in (0, -1):
        with pytest.raises(KeyboardInterrupt):
            transport.put(data[:-1], "file", deadline=SECONDS, on_bytes=pull_the_plug)
        (part,) = (server.home / ".edgekit" / "incoming").glob(".part-*")
        broken = bytearray(data[:1_000_000])
        broken[damage] ^= 1
        part.write_bytes(broken)
        transport.put(data[:-1], "file", deadline=SECONDS)
        assert (server.home / ".edgekit" / "file").read_bytes() == data[:-1]
        assert parts(server) == []


def test_same_file_from_many_at_once(server: Sshd, connect: Connect) -> None:
    data = os.urandom(2_000_000)
    failed: list[Exception] = []

    def put(transport: SshTransport) -> None:
        try:
            transport.put(data, "folder/file", deadline=SECONDS)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=put, args=(connect(),)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert (server.home / ".edgekit" / "folder" / "file").read_bytes() == data
    assert parts(server) == []


def test_server_is_killed_in_the_middle(server: Sshd, connect: Connect) -> None:
    data = os.urandom(8_000_000)
    kills: list[int] = []

    def kill(_: int) -> None:
        if len(kills) < 3:
            kills.append(1)
            server.cut()

    transport = connect()
    transport.put(data, "file", deadline=SECONDS, on_bytes=kill)
    assert transport.get("file", deadline=SECONDS) == data
    assert len(kills) == 3


def test_command_is_not_run_twice(server: Sshd, connect: Connect) -> None:
    transport = connect()
    transport.run(["true"], deadline=SECONDS)

    def cut() -> None:
        until((server.home / ".edgekit" / "runs").exists)
        server.cut()

    killer = threading.Thread(target=cut)
    killer.start()
    with pytest.raises(LinkLostError, match="board 'b': expected an answer while running"):
        transport.run(["sh", "-c", "echo x >> runs; sleep 99"], deadline=SECONDS)
    killer.join()
    assert transport.run(["cat", "runs"], deadline=SECONDS).stdout == b"x\n"


def test_link_cut_between_calls(server: Sshd, connect: Connect) -> None:
    transport = connect()
    for _ in range(3):
        assert transport.run(["echo", "x"], deadline=SECONDS).stdout == b"x\n"
        server.cut()
        transport.remove("nothing", deadline=SECONDS)
        server.cut()


def test_board_that_went_away(server: Sshd, connect: Connect) -> None:
    transport = connect()
    transport.run(["true"], deadline=SECONDS)
    server.close()
    with (
        ends_by_itself(),
        pytest.raises(UnreachableError, match=r"board 'b': .* connecting to "),
    ):
        transport.run(["true"], deadline=1)


def test_disk_full_leaves_the_old_file(server: Sshd, connect: Connect) -> None:
    connect().put(b"old", "file", deadline=SECONDS)
    server.limit_files(100)
    with pytest.raises(TransferError, match=r"board .b.: file: expected to .* neither full nor"):
        connect().put(bytes(SIZE), "file", deadline=SECONDS)
    assert (server.home / ".edgekit" / "file").read_bytes() == b"old"
    assert parts(server) == []


def test_slow_link(server: Sshd, connect: Connect) -> None:
    """Throughput exceeds 64 KiB per round trip once the round-trip time is known.

    On a busy machine, only a longer trip leaves enough time to send more.
    """
    data, sent, received = os.urandom(2_000_000), 0, 0
    with running_proxy(server.host, server.port) as proxy:
        transport = connect(port=proxy.port)
        transport.put(b"", "empty", deadline=SECONDS)
        for proxy.delay in (0.1, 0.3):
            transport.put(data, "file", deadline=SECONDS)
            sent, proxy.most_under_way = max(sent, proxy.most_under_way), 0
            assert transport.get("file", deadline=SECONDS) == data
            received, proxy.most_under_way = max(received, proxy.most_under_way), 0
            if min(sent, received) > 4 * 65536:
                break
    assert min(sent, received) > 4 * 65536


def test_nobody_listens(connect: Connect) -> None:
    with pytest.raises(UnreachableError, match=r"while connecting to 127.0.0.1:1, .* refused"):
        connect(port=1).run(["true"], deadline=SECONDS)


def test_no_such_host(connect: Connect) -> None:
    with pytest.raises(UnreachableError, match=r"while connecting to no\.such\.host\.invalid:"):
        connect(host="no.such.host.invalid").run(["true"], deadline=5)


def test_no_answer_to_connecting(connect: Connect) -> None:
    with silent_port() as port:
        assert late(connect(port=port), "connecting to", 0.5)


_RUNNING = "running|no sign that it started"


@pytest.mark.parametrize(
    ("after", "step"),
    [
        (0, "reading the banner of"),
        (10, "reading the banner of"),
        (60, "exchanging keys with"),
        (1_000, "exchanging keys with"),
        (-1_400, "logging in at|exchanging keys with"),
        (-1_200, f"exchanging keys with|logging in at|{_RUNNING}"),
        (-1_000, f"logging in at|{_RUNNING}"),
        (-800, f"logging in at|{_RUNNING}"),
        (-500, f"logging in at|{_RUNNING}"),
        (-200, _RUNNING),
    ],
)
def test_silence_at_each_step_of_a_command(
    server: Sshd, connect: Connect, after: int, step: str
) -> None:
    """Negative numbers count from the end: keys of newer OpenSSH are a thousand bytes longer.

    On a slow machine, an earlier step may exceed the first deadlines, so longer ones follow.
    """
    if after < 0:
        with running_proxy(server.host, server.port) as proxy:
            connect(port=proxy.port).run(["true"], deadline=SECONDS)
            after += proxy.down
    for deadline in (0.7, 7.0, 70.0):
        with running_proxy(server.host, server.port, Fault(after, "down", cut=False)) as proxy:
            if late(connect(port=proxy.port), step, deadline):
                return
    raise AssertionError(step)


def test_silence_while_a_command_runs(server: Sshd, connect: Connect) -> None:
    with running_proxy(server.host, server.port) as proxy:
        transport = connect(port=proxy.port)
        transport.run(["true"], deadline=SECONDS)
        proxy.faults.append(Fault(5_000, "down", cut=False))
        proxy.cut()
        with (
            ends_by_itself(),
            pytest.raises(UnreachableError, match=r"expected 'yes' to end within 1.5 s"),
        ):
            transport.run(["yes"], deadline=1.5)


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("after", few_or_all([3_500, 200_000, 1_000_000], [200_000]))
def test_silence_while_a_file_is_sent_or_fetched(
    server: Sshd, connect: Connect, way: str, after: int
) -> None:
    data = os.urandom(SIZE)
    connect().put(data, "file", deadline=SECONDS)
    with running_proxy(server.host, server.port) as proxy:
        transport = connect(port=proxy.port)
        transport.run(["true"], deadline=SECONDS)
        proxy.faults.append(Fault(after, way, cut=False))
        proxy.cut()
        with (
            ends_by_itself(),
            pytest.raises(UnreachableError, match=r"board 'b': expected an? .* while"),
        ):
            if way == "up":
                transport.put(data, "new", deadline=1.5)
            else:
                transport.get("file", deadline=1.5)


def late(transport: SshTransport, step: str, deadline: float) -> bool:
    """True if the deadline expires in this step."""
    with ends_by_itself(), pytest.raises(UnreachableError, match="board 'b': ") as error:
        transport.run(["sleep", "200"], deadline=deadline)
    return re.search(f"board 'b': .*({step})", str(error.value)) is not None
