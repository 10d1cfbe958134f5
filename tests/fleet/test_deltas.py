"""Boards fetch a delta against a file of the release they have, where it is smaller by enough."""

from __future__ import annotations

import hashlib
import lzma
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.device.runtime.agent.delta import BLOCK, COUNT, MAGIC, MOST_SHARE, PIECE, rebuild
from edgekit.device.runtime.agent.manifest import FileEntry
from edgekit.device.runtime.agent.push import LaterError
from edgekit.device.runtime.errors import TransferError
from edgekit.host.compiler.artifact import Artifact
from edgekit.host.deploy.bundle import Bundle, SigningKey, sign_bundle
from edgekit.host.fleet.updates.deltas import make_deltas
from tests.support.fetching import NAME, Fetching
from tests.support.places import few_or_all
from tests.support.proxy import Fault, running_proxy
from tests.support.tiny_bundles import with_weights

pytest.importorskip("pyarrow")

_COUNT = 1 << 16
_RNG = np.random.default_rng(0)
USED = (2, 1)  # by the model
FIRST = _RNG.normal(0, 0.05, _COUNT).astype(np.float32)
TRAINED = (FIRST * _RNG.normal(1, 1e-3, _COUNT)).astype(np.float32)
OTHER = _RNG.normal(0, 0.05, _COUNT).astype(np.float32)
for _weights in (FIRST, TRAINED, OTHER):
    _weights[:2] = USED
SIZE = FIRST.nbytes

Weighted = Callable[..., Bundle]


@pytest.fixture(scope="session")
def weighted(tiny_artifact: Callable[..., Artifact], trusted: SigningKey) -> Weighted:
    """A signed bundle with these weights."""

    def build(weights: np.ndarray[Any, Any], counter: int = 0) -> Bundle:
        artifact = tiny_artifact(f'TINY_WEIGHTS="{SIZE}"')
        return sign_bundle(with_weights(artifact, weights.tobytes(), counter), trusted)

    return build


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the deltas that the first offer of a module made: a second of CPU time."""
    return tmp_path_factory.mktemp("made") / "deltas"


@pytest.fixture
def trained(place: Fetching, weighted: Weighted, made: Path) -> Bundle:
    """An offered release like the one that the board runs, trained a little longer."""
    place.offer(weighted(FIRST))
    place.poll()
    bundle, deltas = weighted(TRAINED, 1), place.folder.path / "deltas"
    if made.exists():
        shutil.copytree(made, deltas)
        place.offer(bundle)
    else:
        place.offer(bundle)
        shutil.copytree(deltas, made)
    return bundle


def delta_of(place: Fetching) -> Path:
    (found,) = (p for p in (place.folder.path / "deltas").iterdir() if p.stat().st_size)
    return found


def weights_of(place: Fetching) -> Path:
    return place.store.root / "current" / "weights.bin"


@pytest.mark.slow
def test_a_board_downloads_what_changed(place: Fetching, trained: Bundle) -> None:
    with running_proxy("127.0.0.1", place.home.port) as proxy:
        (ended,) = place.poll(proxy.port)
        assert proxy.down < MOST_SHARE * SIZE + 60_000
    assert (ended.end, place.current) == ("committed", trained.manifest.id)
    assert weights_of(place).read_bytes() == TRAINED.tobytes()
    report = place.folder.reports(NAME)[""]
    assert report.saved_bytes == SIZE - delta_of(place).stat().st_size > 0.3 * SIZE
    assert place.poll() == []


@pytest.mark.exhaustive
def test_a_delta_that_saves_too_little_is_not_offered(
    place: Fetching, trained: Bundle, weighted: Weighted
) -> None:
    place.poll()
    place.offer(weighted(OTHER, 2))
    sizes = {p.stat().st_size for p in (place.folder.path / "deltas").iterdir()}
    assert 0 in sizes  # tried, and not again
    (ended,) = place.poll()
    assert (ended.saved_bytes, weights_of(place).read_bytes()) == (0, OTHER.tobytes())
    assert "saved_bytes" not in ended.document  # which older servers would refuse


@pytest.mark.slow
def test_a_delta_is_made_once(place: Fetching, trained: Bundle) -> None:
    before = delta_of(place).stat()
    place.offer(trained, boards=[NAME, "y"])
    place.folder.rotate(place.owner, place.owner)
    after = delta_of(place).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


_LIES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda good: b"",
    "noise": lambda good: b"x" * len(good),
    "half": lambda good: good[: len(good) // 2],
    "order": lambda good: good[:8] + b"\1" + good[9:],  # another order of bytes
    "end": lambda good: good[:-40] + bytes(40),
    # Too long, and too short:
    "bomb": lambda good: MAGIC + b"\1" + lzma.compress(bytes(64 * SIZE)),
    "short": lambda good: MAGIC + b"\1" + lzma.compress(bytes(100)),
    "long": lambda good: good + bytes(SIZE),  # more than the rule allows
    "far": lambda good: (
        MAGIC + b"\1" + lzma.compress(COUNT.pack(1) + PIECE.pack((1 << 64) - 1, SIZE) + bytes(SIZE))
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", few_or_all(_LIES, ["half", "bomb", "far"]))
def test_a_server_that_lies_about_a_delta_changes_nothing(
    place: Fetching, trained: Bundle, lie: str
) -> None:
    path = delta_of(place)
    path.write_bytes(_LIES[lie](path.read_bytes()))
    (ended,) = place.poll()
    assert (ended.end, ended.saved_bytes) == ("committed", 0)
    assert weights_of(place).read_bytes() == TRAINED.tobytes()


@pytest.mark.slow
def test_a_damaged_file_on_the_board_is_no_base(place: Fetching, trained: Bundle) -> None:
    weights_of(place).write_bytes(bytes(SIZE))
    (ended,) = place.poll()
    assert (ended.end, ended.saved_bytes) == ("committed", 0)
    assert weights_of(place).read_bytes() == TRAINED.tobytes()


@pytest.mark.slow
def test_a_cut_delta_resumes(place: Fetching, trained: Bundle) -> None:
    length = delta_of(place).stat().st_size
    with running_proxy("127.0.0.1", place.home.port) as proxy:
        proxy.faults[:] = [Fault(length // 2 + 20_000, "down")]
        with pytest.raises(LaterError, match="expected to fetch releases"):
            place.poll(proxy.port)
        (part,) = (place.store.root / "fetch" / "files").glob("*.delta")
        kept, before = part.stat().st_size, proxy.down
        assert 0 < kept < length
        (ended,) = place.poll(proxy.port)
        assert proxy.down - before < length - kept + 60_000
    assert ended.saved_bytes == SIZE - length


@pytest.mark.exhaustive
def test_a_delta_that_was_received_before_a_kill_is_used(place: Fetching, trained: Bundle) -> None:
    files = place.store.root / "fetch" / "files"
    files.mkdir()
    delta = delta_of(place)
    (files / f"{delta.name}.delta").write_bytes(delta.read_bytes())
    (files / f"{delta.name}.made").write_bytes(b"a part")
    (ended,) = place.poll()
    assert ended.saved_bytes == SIZE - delta.stat().st_size
    assert not files.exists()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["delta", "made"])
def test_a_full_disk_leaves_the_old_release(place: Fetching, trained: Bundle, what: str) -> None:
    files, old = place.store.root / "fetch" / "files", place.current
    files.mkdir()
    (files / f"{delta_of(place).name}.{what}").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        place.poll()
    assert (place.current, files.exists()) == (old, False)
    assert place.folder.reports(NAME)[""].end == "failed"
    place.poll()
    assert place.current == trained.manifest.id


@pytest.mark.slow
@given(
    st.sampled_from([0, 1, 5, BLOCK - 1, BLOCK, BLOCK + 3, 3 * BLOCK + 2]),
    st.sampled_from([BLOCK - 2, BLOCK, 2 * BLOCK + 1]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=6, deadline=None)
def test_any_file_is_rebuilt(
    tmp_path_factory: pytest.TempPathFactory, before: int, after: int, seed: int
) -> None:
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(seed)
    old = rng.integers(0, 256, max(before, after), dtype=np.uint8)
    new = old + (rng.random(old.size) < 0.1).astype(np.uint8) * 255  # a tenth is less by one
    base, target = put(folder, old[:before]), put(folder, new[:after])
    make_deltas(folder, folder / "deltas", release(target), release(base))
    for delta in folder.glob("deltas/*"):  # none if the old one is too short
        if delta.stat().st_size:
            sha256 = rebuild(folder / base.sha256, delta, target.bytes, folder / "made")
            assert sha256 == target.sha256
            assert (folder / "made").read_bytes() == new[:after].tobytes()
        else:
            assert before < after


def test_moved_bytes_are_found(tmp_path: Path) -> None:
    old = np.random.default_rng(0).integers(0, 256, BLOCK + 5000, dtype=np.uint8)
    base, target = put(tmp_path, old), put(tmp_path, np.insert(old[400:], 40_000, [7] * 1200))
    make_deltas(tmp_path, tmp_path / "deltas", release(target), release(base))
    (delta,) = (tmp_path / "deltas").iterdir()
    assert 0 < delta.stat().st_size < 0.05 * target.bytes
    found = rebuild(tmp_path / base.sha256, delta, target.bytes, tmp_path / "made")
    assert found == target.sha256


@pytest.mark.exhaustive
def test_a_pruned_file_comes_compressed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    old = rng.integers(0, 256, 6 * BLOCK, dtype=np.uint8)
    new = np.where(rng.random(old.size) < 0.8, 0, old)[: 5 * BLOCK + 1]
    base, target = put(tmp_path, old), put(tmp_path, new)
    make_deltas(tmp_path, tmp_path / "deltas", release(target), release(base))
    (delta,) = (tmp_path / "deltas").iterdir()
    assert 0 < delta.stat().st_size < 0.4 * target.bytes
    found = rebuild(tmp_path / base.sha256, delta, target.bytes, tmp_path / "made")
    assert found == target.sha256


@pytest.mark.exhaustive
def test_memory_is_bounded(tmp_path: Path) -> None:
    old = np.random.default_rng(0).integers(0, 256, 1 << 23, dtype=np.uint8)
    base, target = put(tmp_path, old), put(tmp_path, old + (np.arange(old.size) % 7 == 0))
    make_deltas(tmp_path, tmp_path / "deltas", release(target), release(base))
    (delta,) = (tmp_path / "deltas").iterdir()
    tracemalloc.start()
    try:
        found = rebuild(tmp_path / base.sha256, delta, target.bytes, tmp_path / "made")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == target.sha256
    assert peak < 6 << 20
    greedy = lzma.compress(
        bytes(1 << 20), filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28}]
    )
    delta.write_bytes(MAGIC + b"\1" + greedy)
    with pytest.raises(TransferError, match="delta: expected one for this file, found Memory"):
        rebuild(tmp_path / base.sha256, delta, 1 << 20, tmp_path / "made")


def put(folder: Path, content: np.ndarray[Any, Any]) -> FileEntry:
    """Stores a file under its SHA-256, as a folder of releases does."""
    data = content.astype(np.uint8).tobytes()
    sha256 = hashlib.sha256(data).hexdigest()
    (folder / sha256).write_bytes(data)
    return FileEntry("weights.bin", len(data), sha256)


def release(file: FileEntry) -> Any:
    """The part of a manifest that deltas need."""
    return SimpleNamespace(files=(file,))
