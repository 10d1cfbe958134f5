"""Metadata of TFLite files: how pixels are scaled, labels."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tflite

from edgekit.host.compiler.inputs import read_notes
from edgekit.host.compiler.inputs.metadata import InputNotes, read_loss


def described_model(file: Path) -> bytes:
    """Write a file containing only metadata, for scaled pixels and two labels; return the
    metadata."""
    b = flatbuffers.Builder()

    def table(fields: dict[int, tuple[str, Any]]) -> int:
        b.StartObject(10)
        for slot, (kind, value) in fields.items():
            if kind == "u8":
                b.PrependUint8Slot(slot, value, 0)
            else:
                b.PrependUOffsetTRelativeSlot(slot, value, 0)
        return int(b.EndObject())

    def vector(items: list[int]) -> int:
        b.StartVector(4, len(items), 4)
        for item in reversed(items):
            b.PrependUOffsetTRelative(item)
        return int(b.EndVector())

    def floats(values: list[float]) -> int:
        b.StartVector(4, len(values), 4)
        for value in reversed(values):
            b.PrependFloat32(value)
        return int(b.EndVector())

    scaling = table({0: ("o", floats([127.5])), 1: ("o", floats([128.0]))})
    unit = table({0: ("u8", 1), 1: ("o", scaling)})
    labels = table({0: ("o", b.CreateString("labels.txt")), 2: ("u8", 2)})
    inputs = vector([table({4: ("o", vector([unit]))})])
    outputs = vector([table({6: ("o", vector([labels]))})])
    graph = table({2: ("o", inputs), 3: ("o", outputs)})
    version = b.CreateString("v2")
    b.Finish(table({2: ("o", version), 3: ("o", vector([graph]))}))
    metadata = bytes(b.Output())

    b = flatbuffers.Builder()
    data = b.CreateByteVector(metadata)
    tflite.BufferStart(b)
    tflite.BufferAddData(b, data)
    buffer = tflite.BufferEnd(b)
    tflite.ModelStartBuffersVector(b, 1)
    b.PrependUOffsetTRelative(buffer)
    buffers = b.EndVector()
    name = b.CreateString("TFLITE_METADATA")
    tflite.MetadataStart(b)
    tflite.MetadataAddName(b, name)
    tflite.MetadataAddBuffer(b, 0)
    entry = tflite.MetadataEnd(b)
    tflite.ModelStartMetadataVector(b, 1)
    b.PrependUOffsetTRelative(entry)
    entries = b.EndVector()
    tflite.ModelStart(b)
    tflite.ModelAddBuffers(b, buffers)
    tflite.ModelAddMetadata(b, entries)
    b.Finish(tflite.ModelEnd(b), b"TFL3")
    file.write_bytes(b.Output())
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("labels.txt", "cat\ndog\n")
    return metadata


def test_metadata_of_published_models_is_read() -> None:
    """Real files, since metadata written by the tests may share the reader's mistakes."""
    folder = Path(__file__).parents[3] / "models"
    assert read_notes(folder / "pose_detection.tflite").inputs == (InputNotes((127.5,), (127.5,)),)
    hand = read_notes(folder / "hand_landmark_lite.tflite")
    assert hand.inputs == (InputNotes((0.0,) * 3, (255.0,) * 3),)
    assert ("Left", "Right") in hand.labels


@pytest.mark.parametrize("name", ["model.TFLITE", "model.onnx", "model"])
def test_metadata_is_read_whatever_the_name(tmp_path: Path, name: str) -> None:
    source = Path(__file__).parents[3] / "models" / "hand_landmark_lite.tflite"
    shutil.copy(source, tmp_path / name)
    assert read_notes(tmp_path / name) == read_notes(source)
    assert read_loss(tmp_path / name) is None


def test_labels_are_packed_without_metadata(tmp_path: Path) -> None:
    source = Path(__file__).parents[3] / "models" / "okay_nabu.tflite"
    for names in (["labelmap.txt"], ["vocab.txt"], ["labels.txt", "anchors.txt"]):
        file = Path(shutil.copy(source, tmp_path / "m.tflite"))
        with zipfile.ZipFile(file, "a") as archive:
            for name in names:
                archive.writestr(name, "cat\ndog\n")
        found = read_notes(file).labels
        assert found == ((("cat", "dog"),) if names == ["labelmap.txt"] else ())


def test_metadata_says_how_pixels_are_scaled_and_what_classes_are(tmp_path: Path) -> None:
    file = tmp_path / "m.tflite"
    metadata = described_model(file)
    notes = read_notes(file)
    assert notes.inputs == (InputNotes((127.5,), (128.0,)),)
    assert notes.labels == (("cat", "dog"),)
    good, at = file.read_bytes(), file.read_bytes().index(metadata)
    rng = np.random.default_rng(5)
    for _ in range(300):  # corrupted metadata is ignored or read as something else
        damaged = bytearray(good)
        for place in rng.integers(at, at + len(metadata), 3):
            damaged[place] = rng.integers(256)
        file.write_bytes(damaged)
        read_notes(file)
    for size in range(0, len(good), 37):
        file.write_bytes(good[:size])
        read_notes(file)
