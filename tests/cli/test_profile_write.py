"""`edgekit fleet serve` and the commands that read its output, as a user types them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.host.fleet.profiles import Bus, ProfileStore
from tests.support.nats_servers import PROGRAM, running_nats
from tests.support.profile_batches import stream

for library in ("pyarrow", "duckdb", "nats"):
    pytest.importorskip(library)


@pytest.mark.slow
@pytest.mark.skipif(not PROGRAM.exists(), reason="no nats-server for this machine")
def test_what_waits_is_written_and_asked(edgekit: Any, home: Path, tmp_path: Path) -> None:
    with running_nats(tmp_path / "nats") as nats:
        bus = Bus(nats.url, 1)
        ProfileStore().hand_over("x", stream(1, 1, 2), bus)
        bus.close()
        write = (
            "fleet",
            "serve",
            "--nats",
            nats.url,
            "--store",
            "shared",
            "--replicas",
            "1",
        )
        done = edgekit(*write, "--once")
        assert done.out == "wrote    2 batches with 4 rows in 1 file, 1 known before\n"
        shown = edgekit(*write, "--once", "--json").document
        assert (shown["batches"], shown["store"]) == (0, "shared")
        refused = edgekit(*write[:-2], "--once")
        assert refused.code == 5
        assert "expected stream EDGEKIT_PROFILES in 3 replicas on disk" in refused.complaint
        assert edgekit("fleet", "serve", "--nats", nats.url, "--max-size", "1GiB").code == 2
    sql = "SELECT name, max(max_ns) FROM operators GROUP BY 1 ORDER BY 1"
    asked = edgekit("profile", "list", sql, "--store", "shared", "--json").document
    assert asked["rows"] == [["op0", 2], ["op1", 2]]
    assert edgekit("profile", "list", "-o", "out.csv", "--store", "shared", "--json").code == 0
    (board,) = edgekit("profile", "list", "--store", "shared", "--json").document["boards"]
    assert (board["board"], board["batches"], board["quarantined"]) == ("x", 2, None)
    assert edgekit("profile", "list", "--store", "shared").out.count("\n") == 2
    assert edgekit("profile", "report", "--store", "shared", "--json").document["models"] == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("fleet", "serve", "--nats", "here", "--store", "x"),
            "--nats: expected nats://HOST:PORT",
        ),
        (
            ("fleet", "serve", "--nats", "nats://x", "--store", "x", "--every", "1d"),
            "--every: expected secon",
        ),
        (
            ("fleet", "serve", "--nats", "nats://x", "--store", "gs://x"),
            "expected a folder or s3://BUCKET",
        ),
        (
            ("fleet", "serve", "--nats", "nats://x", "--store", "s3://x/y?z=1"),
            "expected s3://BUCKET/FOLDER, ",
        ),
        (
            ("profile", "list", "--store", "nowhere"),
            "nowhere: expected a store of edgekit fleet serve",
        ),
        (("fleet", "serve", "--nats", "here"), "--nats: expected nats://HOST:PORT"),
    ],
)
def test_bad_places_are_one_line(
    edgekit: Any, home: Path, arguments: tuple[str, ...], expected: str
) -> None:
    done = edgekit(*arguments)
    assert done.code == 2
    assert expected in done.complaint
