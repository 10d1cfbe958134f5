"""Field reports: agreement with float models and ranges of tensors, from boards to answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.agent.sketch import (
    KEPT,
    edges,
    parse_sketch,
    sketch_of,
    sketch_text,
)
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles import (
    ProfileStore,
    agreements,
    field_ranges,
    query,
    stray_tensors,
)
from tests.support.profile_batches import bins_of, field_batch, headed, stream

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

NORMAL = np.random.default_rng(1).standard_normal(10_000).astype(np.float32)
WIDE = 3 * NORMAL


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    return ProfileStore(tmp_path / "profiles")


def test_a_sketch_has_the_counts_of_numpy_within_6_percent() -> None:
    values = np.concatenate([NORMAL, 100 * NORMAL[:50], np.zeros(7, np.float32)])
    found = parse_sketch(sketch_text(sketch_of(bins_of(values))))
    assert found.top == sketch_of(bins_of(values)).top
    for sign, counts in ((1, found.counts[:KEPT]), (-1, found.counts[KEPT:])):
        for place, count in enumerate(counts):
            low, high = edges(found.top - KEPT + 1 + place)
            mine = sign * values
            there = int((((mine >= low) | (place == 0)) & (mine > 0) & (mine < high)).sum())
            assert abs(count - there) <= 0.06 * there


@pytest.mark.parametrize(
    "text", ["", "A" * 47, "é" * 48, "/" * 48, sketch_text(sketch_of([0] * 1024))[:-2]]
)
def test_what_is_no_sketch_is_refused(text: str) -> None:
    with pytest.raises(DeviceInputError, match="sketch: expected"):
        parse_sketch(text)


def test_reports_are_rows_of_their_own_and_other_views_stay(store: ProfileStore) -> None:
    store.add("x", stream(1) + field_batch(2, x=NORMAL, y=WIDE))
    assert query(store, "SELECT count(*) FROM operators", 1).rows == ((2,),)
    assert query(store, "SELECT count(*) FROM batches", 1).rows == ((1,),)
    rows = query(
        store, "SELECT name, samples, agreed FROM fields ORDER BY name NULLS FIRST", 9
    ).rows
    assert rows == ((None, 10, 10), ("x", 10, None), ("y", 10, None))
    assert "agreed" not in [row[0] for row in query(store, "DESCRIBE operators", 99).rows]


def test_files_with_and_without_reports_are_merged(store: ProfileStore) -> None:
    for number in range(10):
        store.add("x", stream(number))
        store.add("x", field_batch(100 + number, x=NORMAL))
    assert store.compact() == 20
    assert query(store, "SELECT count(*) FROM operators", 1).rows == ((20,),)
    assert agreements(store)[0].inferences == 100


def test_a_store_without_reports_has_no_agreement(store: ProfileStore) -> None:
    store.add("x", stream(1))
    assert agreements(store) == []
    assert stray_tensors(store) == []


def test_agreement_is_that_of_all_boards_of_a_release(store: ProfileStore) -> None:
    store.add("x", field_batch(1, 100, 90) + field_batch(2, 50, 50, release="a" * 16))
    store.add("y", field_batch(1, 100, 100))
    found = {each.release: each for each in agreements(store)}
    assert (found["0" * 16].share, found["0" * 16].boards) == (0.95, 2)
    assert found["a" * 16].at_most == pytest.approx(1)
    (of_x,) = agreements(store, "0" * 16, ["x"])
    assert of_x.share == 0.9
    assert 0.93 < of_x.at_most < 0.95  # Wilson, one-sided: 0.9389


def test_tensors_beyond_their_range_are_named_with_the_share_of_values(store: ProfileStore) -> None:
    store.add("x", field_batch(1, x=NORMAL / 8, y=WIDE))
    (stray,) = stray_tensors(store)
    assert (stray.name, stray.from_low, stray.to_high) == ("y", -1.0, 1.0)
    assert (stray.low, stray.high) == (float(WIDE.min()), float(WIDE.max()))
    assert abs(stray.beyond - float((np.abs(WIDE) > 1).mean())) < 0.03


def test_ranges_of_a_model_are_added_up_and_those_of_another_are_refused(
    store: ProfileStore,
) -> None:
    store.add("x", field_batch(1, x=NORMAL))
    store.add("y", field_batch(1, x=WIDE))
    found = field_ranges(store, "2" * 64, "net.onnx")
    assert (found.boards, found.inferences) == (2, 20)
    assert found.tensors["x"].high == float(WIDE.max())
    assert abs(found.tensors["x"].counts.sum() - 20_000) < 600
    with pytest.raises(InputError, match=r"expected ranges of net.onnx .* another model \(tiny\)"):
        field_ranges(store, "3" * 64, "net.onnx")


SKETCH = sketch_text(sketch_of(bins_of(NORMAL))).encode()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"agreed":10', b'"agreed":-1', "does not fit"),
        (b'"agreed":10', b'"agreed":11', "expected results of 10 inferences, found 10, 11 of"),
        (b'"noises":[10,', b'"noises":[9,', "expected results of 10 inferences, found 9"),
        (b'"noises":[10,', b'"noises":[', "does not fit"),
        (b'"agreed":10', b'"agreed":10,"input":[1]', "does not fit"),
        (b'["x",-', b'["x",9', "x: expected a range, found 9"),
        (b'["x",-', b'["x",NaN,-', "does not fit"),
        (b'["x",-', b'["x",-1e39,-', "does not fit"),
        (b'["x",', b'["' + b"x" * 600 + b'",', "does not fit"),
        (b'["x",', b'["\\u001b",', "expected printable text"),
        (SKETCH, SKETCH[:-4], "does not fit"),
        (SKETCH, b"!" * len(SKETCH), "x: sketch: expected 48 characters of base64"),
        (b'"operators":[]', b'"operators":[["a","b","c",1,1,1,1]]', "found 1 operators too"),
        (b"batch/2", b"batch/1", "expected a field report in edgekit.profile.batch/2 alone"),
        (b'"difference"', b'"taste"', "does not fit"),
    ],
)
def test_reports_that_no_board_writes_are_refused(
    store: ProfileStore, old: bytes, new: bytes, why: str
) -> None:
    whole = field_batch(1, x=NORMAL)
    body = whole.partition(b"\n")[2]
    assert old in body
    found = store.add("x", headed(body.replace(old, new)) + stream(2))
    assert found.new == 1
    assert why in found.refused[0]
    assert "\n" not in found.refused[0]


def test_a_report_of_too_many_tensors_is_refused(store: ProfileStore) -> None:
    found = store.add("x", field_batch(1, **{f"t{i}": NORMAL[:9] for i in range(129)}))
    assert "does not fit" in found.refused[0]
