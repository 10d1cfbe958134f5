"""Bundles: reproducible bytes, atomic writes, and no trust in their content."""

from __future__ import annotations

import io
import os
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgekit.device.runtime.errors import DeviceError
from edgekit.host.compiler.artifact import Artifact, Golden
from edgekit.host.deploy.bundle import Bundle, SigningKey, build_bundle
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board

Entries = list[tuple[str, bytes]]


def test_contents_of_a_bundle(bundle: Bundle, ekb: Path) -> None:
    with zipfile.ZipFile(ekb) as archive:
        names = archive.namelist()
        assert all(i.compress_type == zipfile.ZIP_STORED for i in archive.infolist())
        assert {i.date_time for i in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert names[0] == "manifest.json"
    assert names[1] == "manifest.json.sig"
    assert names[2:] == sorted(names[2:])
    assert set(names[2:]) == {
        "golden/in0.bin", "golden/out0.bin", "model.so", "runtime.pyz", "weights.bin"
    }  # fmt: skip
    assert bundle.manifest.board.machine == load_board("local").arch
    assert bundle.manifest.golden.tolerances == (1e-3,)


def test_read_gives_back_what_was_written(bundle: Bundle, ekb: Path) -> None:
    assert Bundle.read(ekb) == bundle
    assert Bundle.read(ekb).to_bytes() == ekb.read_bytes()


def test_unsigned_bundle_stays_unsigned(bundle: Bundle, tmp_path: Path) -> None:
    unsigned = replace(bundle, signature=b"")
    unsigned.write(tmp_path / "unsigned.ekb")
    assert Bundle.read(tmp_path / "unsigned.ekb") == unsigned


def test_same_bytes_in_another_process_and_time_zone(
    bundle: Bundle, ekb: Path, trusted: SigningKey
) -> None:
    code = (
        "import sys; from pathlib import Path; from edgekit.host.deploy.bundle import *\n"
        "read = Bundle.read(Path(sys.argv[1]))\n"
        "again = Bundle(read.manifest, dict(reversed({**read.files, "
        "'runtime.pyz': runtime_pyz()}.items())))\n"
        "signed = sign_bundle(again, signing_key(Path(sys.argv[2])))\n"
        "sys.stdout.buffer.write(signed.to_bytes())"
    )
    environment = {**os.environ, "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(ekb), str(trusted.file.parent)],
        env=environment,
        capture_output=True,
        check=True,
    )
    assert done.stdout == bundle.to_bytes()


def test_a_bundle_asks_for_the_features_that_its_code_uses(
    tiny_artifact: Callable[..., Artifact],
) -> None:
    board, plain = load_board("bpi-f3"), tiny_artifact()
    asked = [
        build_bundle(replace(plain, extras=extras), board).manifest.board.features
        for extras in ((), ("zvfh",))
    ]
    assert asked == [("v",), ("v", "zvfh")]


def test_built_twice_it_is_the_same(tiny_artifact: Callable[..., Artifact]) -> None:
    one, two = (build_bundle(tiny_artifact(), load_board("local")) for _ in range(2))
    assert one.to_bytes() == two.to_bytes()
    assert build_bundle(tiny_artifact(), load_board("local"), 1).manifest.id != one.manifest.id


def test_golden_arrays_are_little_endian_and_contiguous(
    tiny_artifact: Callable[..., Artifact], bundle: Bundle
) -> None:
    artifact = tiny_artifact()
    x, y = artifact.golden.inputs[0], artifact.golden.outputs[0]
    strided = np.repeat(x.astype(">f4"), 2)[::2]
    other = replace(artifact, golden=Golden((strided,), (y,), artifact.golden.tolerances))
    found = build_bundle(other, load_board("local"))
    assert (found.manifest, found.files) == (bundle.manifest, bundle.files)


def test_margins_of_golden_outputs_are_files(tiny_artifact: Callable[..., Artifact]) -> None:
    artifact = tiny_artifact()
    margin = np.arange(artifact.golden.outputs[0].size, dtype=np.uint8)
    golden = replace(artifact.golden, margins=(margin,))
    made = build_bundle(replace(artifact, golden=golden), load_board("local"))
    (path,) = made.manifest.golden.margins
    assert path is not None and made.files[path] == margin.tobytes()


def test_artifact_that_does_not_fit_together(tiny_artifact: Callable[..., Artifact]) -> None:
    with pytest.raises(DeviceError, match=r"size of weights\.bin: expected 8 bytes, found 3"):
        build_bundle(replace(tiny_artifact(), weights=b"abc"), load_board("local"))


def test_disk_full_leaves_no_file(bundle: Bundle, tmp_path: Path) -> None:
    target = tmp_path / "full.ekb"
    target.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(InputError, match=r"full\.ekb: expected \d+ bytes of free disk, found"):
            bundle.write(target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_no_such_folder(bundle: Bundle, tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "x.ekb", Path("/proc/x.ekb")):
        with pytest.raises(InputError, match="expected a file to write, found: No such file or"):
            bundle.write(path)


@pytest.mark.parametrize(
    ("content", "found"),
    [(b"", "not a zip"), (b"PK\3\4", "not a zip"), (b"TFL3" * 99, "not a zip")],
)
def test_not_a_bundle(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "x.ekb"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"x\.ekb: expected an intact bundle.*{found}"):
        Bundle.read(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found no file"):
        Bundle.read(tmp_path / "x.ekb")
    with pytest.raises(InputError, match="Is a directory"):
        Bundle.read(tmp_path)


def without(entries: Entries, name: str) -> Entries:
    return [e for e in entries if e[0] != name]


HOSTILE: dict[str, tuple[Callable[[Entries], Entries], str]] = {
    "nothing": (lambda _: [], r"no manifest\.json"),
    "no manifest": (lambda e: e[1:], r"no manifest\.json"),
    "no library": (lambda e: without(e, "model.so"), r"'model\.so' not both"),
    "stranger": (lambda e: [*e, ("x", b"")], "'x' not both"),
    "above": (lambda e: [*e, ("../x", b"")], r"'\.\./x' not both"),
    "absolute": (lambda e: [*e, ("/etc/x", b"")], "'/etc/x' not both"),
    "twice": (lambda e: [*e, e[1]], "an entry twice"),
    "shorter": (lambda e: [*e[:-1], ("weights.bin", b"1234567")], "7 bytes instead of 8"),
    "other": (lambda e: [*e[:-1], ("weights.bin", b"12345678")], "SHA-256"),
    "manifest": (lambda e: [("manifest.json", b"{}"), *e[1:]], "document: expected keys"),
    "big manifest": (lambda e: [("manifest.json", bytes(5 << 20)), *e[1:]], "5242880 bytes"),
    "many": (lambda e: [*e, *((f"f{i}", b"") for i in range(5000))], "5007 entries"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_entries(ekb: Path, name: str) -> None:
    change, message = HOSTILE[name]
    with zipfile.ZipFile(ekb) as archive:
        entries = [(i.filename, archive.read(i)) for i in archive.infolist()]
    with zipfile.ZipFile(ekb, "w") as archive:
        for entry in change(entries):
            archive.writestr(*entry)
    with pytest.raises(InputError, match=message) as caught:
        Bundle.read(ekb)
    assert "\n" not in str(caught.value)


def test_bomb_is_refused_unread(ekb: Path) -> None:
    with zipfile.ZipFile(ekb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", bytes(8 << 20))
    with pytest.raises(InputError, match=r"'manifest\.json' compressed"):
        Bundle.read(ekb)


def test_entries_that_claim_more_than_the_file(ekb: Path) -> None:
    data = bytearray(ekb.read_bytes())
    place = data.rindex(b"PK\1\2") + 20
    struct.pack_into("<LL", data, place, 0x7FFFFFFF, 0x7FFFFFFF)
    ekb.write_bytes(data)
    with pytest.raises(InputError, match="entries larger than the file"):
        Bundle.read(ekb)


@pytest.mark.parametrize(
    ("place", "value", "found"),
    [
        (10, struct.pack("<H", 9999), "9999 entries"),
        (12, struct.pack("<L", 2 << 20), "a directory of 2097152 bytes"),
        (20, b"\1\0", "one with a comment"),
    ],
)
def test_ends_that_would_cost_memory(ekb: Path, place: int, value: bytes, found: str) -> None:
    """`place` is an offset into the zip file's end-of-central-directory record."""
    data = bytearray(ekb.read_bytes())
    start = len(data) - 22 + place
    data[start : start + len(value)] = value
    ekb.write_bytes(data)
    with pytest.raises(InputError, match=found):
        Bundle.read(ekb)


def test_64_bit_extensions_are_refused(ekb: Path) -> None:
    data = ekb.read_bytes()
    ekb.write_bytes(data[:-22] + b"PK\6\7" + bytes(16) + data[-22:])
    with pytest.raises(InputError, match="64-bit extensions"):
        Bundle.read(ekb)


def test_file_that_changes_after_it_was_read(bundle: Bundle, ekb: Path) -> None:
    read = Bundle.read(ekb)
    data = bytearray(ekb.read_bytes())
    place = data.index(bundle.files["weights.bin"])
    with ekb.open("r+b") as file:
        file.seek(place)
        file.write(b"12345678")
    with pytest.raises(InputError, match=r"weights\.bin"):
        read.files["weights.bin"]


def test_replaced_file_does_not_matter(bundle: Bundle, ekb: Path) -> None:
    read = Bundle.read(ekb)
    ekb.unlink()
    assert read == bundle


@pytest.mark.slow
@pytest.mark.parametrize("hostile", [False, True])
def test_reading_holds_no_file_in_memory(
    tiny_artifact: Callable[..., Artifact], tmp_path: Path, hostile: bool
) -> None:
    """Reading 100 MB of weights, valid or corrupt, grows the process by less than 16 MiB."""
    weights = bytes(100_000_000)
    artifact = tiny_artifact()
    about = {**artifact.description, "weights_bytes": len(weights)}
    bundle = build_bundle(
        replace(artifact, weights=weights, description=about), load_board("local")
    )
    if hostile:
        bundle = replace(bundle, files={**bundle.files, "weights.bin": weights[:-1] + b"1"})
    bundle.write(tmp_path / "large.ekb")
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from edgekit.host.deploy.bundle import Bundle\n"
        "from edgekit.host.errors import InputError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: Bundle.read(Path(sys.argv[1])); found = False\n"
        "except InputError: found = True\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "sys.exit(0 if after - before < 16 << 10 and found == (sys.argv[2] == 'True') else 1)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "large.ekb"), str(hostile)]
    assert subprocess.run(command, check=False).returncode == 0


def test_every_truncation_is_one_line(bundle: Bundle, tmp_path: Path) -> None:
    whole, path = bundle.to_bytes(), tmp_path / "cut.ekb"
    step = len(whole) // 64
    for length in [*range(0, len(whole), step), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(InputError) as caught:
            Bundle.read(path)
        assert "\n" not in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@pytest.mark.slow
@given(st.data())
def test_mutations_are_found(bundle: Bundle, tmp_path: Path, data: st.DataObject) -> None:
    """A changed byte is rejected unless it is where zip readers do not look."""
    whole = bytearray(bundle.to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        directory = data.draw(st.booleans())
        place = data.draw(st.integers(len(whole) - 600 if directory else 0, len(whole) - 1))
        whole[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "mutated.ekb"
    path.write_bytes(whole)
    try:
        assert Bundle.read(path).files == bundle.files
    except InputError as error:
        assert "\n" not in str(error)


def test_runtime_in_the_bundle_is_a_program(bundle: Bundle) -> None:
    with zipfile.ZipFile(io.BytesIO(bundle.files["runtime.pyz"])) as archive:
        first = ["__main__.py", "edgekit_runtime.py", "edgekit/", "edgekit/device/"]
        assert archive.namelist()[:4] == first
