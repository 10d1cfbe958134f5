"""The health check: accepted outputs, and reports of rejected ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.device.runtime.agent.golden import check_golden, worst_difference
from edgekit.device.runtime.agent.health import check_in_subprocess
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.specs import LossSpec, TensorSpec
from edgekit.device.runtime.agent.store import read_manifest
from edgekit.device.runtime.dtypes import BY_NAME, ElementType
from edgekit.device.runtime.errors import DeviceError, UnhealthyError
from edgekit.host.deploy.bundle import Bundle
from tests.support.patience import AMPLE

Unpack = Callable[..., Path]
SECONDS = AMPLE


@pytest.fixture
def unpack(tmp_path: Path, tiny: Callable[..., Bundle]) -> Unpack:
    """write(*defines): unpacks a tiny bundle as a release folder."""

    def write(*defines: str) -> Path:
        bundle = tiny(*defines)
        (tmp_path / "golden").mkdir()
        (tmp_path / "manifest.json").write_bytes(bundle.manifest.to_json())
        for path, data in bundle.files.items():
            (tmp_path / path).write_bytes(data)
        return tmp_path

    return write


@pytest.mark.parametrize("defines", [(), ("TINY_STATE",)])
def test_right_output_is_healthy(unpack: Unpack, defines: tuple[str, ...]) -> None:
    folder = unpack(*defines)
    assert check_golden(ReleaseFiles(folder), read_manifest(folder))["max_difference"] == [0.0]
    assert check_in_subprocess(folder, SECONDS)["max_difference"] == [0.0]


def test_what_fewer_bits_cost_is_part_of_the_answer(unpack: Unpack) -> None:
    folder = unpack()
    manifest = replace(read_manifest(folder), loss=LossSpec(0.99, 0.02, 9)).with_id()
    (folder / "manifest.json").write_bytes(manifest.to_json())
    assert check_golden(ReleaseFiles(folder), read_manifest(folder))["loss"] == {
        "cosine": 0.99,
        "off": 0.02,
        "samples": 9,
    }
    assert check_in_subprocess(folder, SECONDS)["loss"] == {
        "cosine": 0.99,
        "off": 0.02,
        "samples": 9,
    }


def test_wrong_output_says_how_far_off(unpack: Unpack) -> None:
    folder = unpack("TINY_WRONG")
    message = "'y': expected a difference of at most 0.001 from the golden output, found 0.5"
    with pytest.raises(DeviceError, match=message):
        check_golden(ReleaseFiles(folder), read_manifest(folder))
    with pytest.raises(UnhealthyError, match=message):
        check_in_subprocess(folder, SECONDS)


def test_crash_is_seen_from_outside(unpack: Unpack) -> None:
    folder = unpack("TINY_CRASH")
    with pytest.raises(UnhealthyError, match="killed by SIGABRT"):
        check_in_subprocess(folder, SECONDS)


def test_hang_ends_in_time(unpack: Unpack) -> None:
    folder = unpack("TINY_HANG")
    with pytest.raises(UnhealthyError, match=r"no answer within 0\.5 s"):
        check_in_subprocess(folder, 0.5)


def test_runtime_that_is_none(unpack: Unpack) -> None:
    folder = unpack()
    (folder / "runtime.pyz").write_text("import sys; print('oh', file=sys.stderr); sys.exit(3)")
    with pytest.raises(UnhealthyError, match="exit code 3") as caught:
        check_in_subprocess(folder, SECONDS)
    assert caught.value.log == "oh\n"


@given(
    st.sampled_from([t for t in BY_NAME.values() if t.name != "bool"]),
    st.lists(st.integers(0, 100), min_size=2, max_size=20),
)
def test_difference_as_numpy_computes_it(element: ElementType, numbers: list[int]) -> None:
    one, two = np.array(numbers, element.npy), np.array(numbers[::-1], element.npy)
    expected = np.max(np.abs(one.astype(float) - two.astype(float)))
    found = worst_difference(spec(element.name, len(numbers)), one.tobytes(), two.tobytes())
    assert found.largest == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (math.nan, math.nan, 0),
        (math.inf, math.inf, 0),
        (math.inf, -math.inf, math.inf),
        (0.0, -0.0, 0),
    ],
)
def test_difference_of_special_numbers(a: float, b: float, expected: float) -> None:
    one, two = np.array([a, 1], "f4"), np.array([b, 1.0000001], "f4")
    assert worst_difference(spec("f32", 2), one.tobytes(), two.tobytes()).largest == pytest.approx(
        expected, abs=1e-6
    )


def test_nan_is_never_within_a_tolerance() -> None:
    one, two = np.array([math.nan], "f4"), np.array([1], "f4")
    assert worst_difference(spec("f32", 1), one.tobytes(), two.tobytes()).largest == math.inf


def spec(dtype: str, count: int) -> TensorSpec:
    return TensorSpec("t", dtype, (count,), None, None)
