"""The manifest: only its canonical text is accepted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.device.runtime.agent.manifest import (
    FileEntry,
    content_id,
    is_release_id,
    parse_manifest,
)
from edgekit.device.runtime.agent.shadow_spec import ShadowSpec, WatchedTensor
from edgekit.device.runtime.agent.specs import BoardMemory, LossSpec, safe_path
from edgekit.device.runtime.errors import InputError
from edgekit.host.deploy.bundle import Bundle

MakeBundle = Callable[..., Bundle]
Path = tuple[str | int, ...]


@pytest.fixture(scope="module")
def text(paper: MakeBundle) -> bytes:
    return paper().manifest.to_json()


def test_text_and_manifest_are_the_same(text: bytes) -> None:
    manifest = parse_manifest(text)
    assert manifest.to_json() == text
    assert manifest.with_id() == manifest
    assert manifest.id == content_id(json.loads(text))
    assert is_release_id(manifest.id)


def test_id_depends_on_everything(text: bytes) -> None:
    manifest = parse_manifest(text)
    assert replace(manifest, counter=manifest.counter + 1).with_id().id != manifest.id
    with pytest.raises(InputError, match=f"id: expected .*, found {manifest.id}"):
        parse_manifest(replace(manifest, counter=1).to_json())


def test_the_loss_of_a_manifest(paper: MakeBundle) -> None:
    made = replace(paper().manifest, loss=LossSpec(0.99, 0.02, 9)).with_id()
    text = made.to_json()
    assert parse_manifest(text) == made
    for change, message in (
        ({"loss": {}}, "loss: expected"),
        (
            {"loss": {"cosine": 2.0, "off": 0.0, "samples": 0}},
            "loss.cosine: expected a number from -1 to 1",
        ),
        ({"loss": {"cosine": 1.0, "off": 0.0, "samples": -1}}, "loss.samples: expected a whole"),
        ({"loss": {"cosine": 1.0}}, "loss: expected"),
    ):
        with pytest.raises(InputError, match=message):
            parse_manifest(json.dumps(json.loads(text) | change).encode())


@pytest.mark.parametrize("wrong", [None, True, -1, 1.5, "", "\n", [], {}, [{}], 1 << 70])
def test_wrong_type_anywhere_is_refused(text: bytes, wrong: Any) -> None:
    for path in _paths(json.loads(text)):
        document = json.loads(text)
        before = _replace(document, path, wrong)
        if before != wrong or type(before) is not type(wrong):
            with pytest.raises(InputError):
                parse_manifest(json.dumps(document).encode())


def test_missing_and_unknown_keys_are_refused(text: bytes) -> None:
    for path in _paths(json.loads(text)):
        document = json.loads(text)
        parent = _get(document, path[:-1])
        if isinstance(parent, dict):
            parent["unknown"] = parent.pop(path[-1])
            with pytest.raises(InputError):
                parse_manifest(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe", "utf-8"),
        (b"[]", "expected an object, found list"),
        (b"[" * 100_000, "recursion|Stack overflow"),
        (b'{"a":1,"a":1}', "same key twice"),
        (b'{"counter":NaN}', "the number NaN"),
        (b" " * (5 << 20), "5242880 bytes"),
    ],
)
def test_an_invalid_manifest_is_refused(data: bytes, found: str) -> None:
    with pytest.raises(InputError, match=found) as caught:
        parse_manifest(data)
    assert "\n" not in str(caught.value)


SHADOW = ShadowSpec(
    "float/model.so",
    BoardMemory(64, 0, 8),
    100,
    "class",
    "2" * 64,
    (WatchedTensor("t", -1.0, None),),
)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, ""),
        ({"measure": "taste"}, "shadow.measure: expected class or difference, found taste"),
        ({"every": 0}, "shadow.every: expected a whole number from 1"),
        ({"library": "../model.so"}, "shadow.library: expected a plain relative path"),
        ({"library": "other.so"}, "'float/model.so' not in both"),
        ({"library": "model.so"}, "expected one file per library and tensor"),
        ({"model_sha256": "2"}, "shadow.model_sha256: expected 64 hex digits"),
        ({"watched": SHADOW.watched * 129}, "shadow.watched: expected at most 128, found 129"),
        ({"memory": BoardMemory(64, 0, 9)}, "size of weights.bin: expected 9 bytes, found 8"),
    ],
)
def test_a_float_model_that_cannot_be_is_refused(
    paper: MakeBundle, changes: dict[str, Any], found: str
) -> None:
    plain = paper().manifest
    files = [*plain.files]
    if changes.get("library") != "model.so":
        files.append(FileEntry("float/model.so", 1, "3" * 64))
    made = replace(plain, shadow=replace(SHADOW, **changes), files=tuple(files)).with_id()
    if found:
        with pytest.raises(InputError, match=re.escape(found)):
            parse_manifest(made.to_json())
    else:
        assert parse_manifest(made.to_json()) == made


@pytest.mark.parametrize("version", [2, 5, 9])
def test_a_manifest_of_another_schema_is_refused_in_one_line(text: bytes, version: int) -> None:
    document = json.loads(text) | {"schema": f"edgekit.bundle/{version}"}
    del document["loss"]  # the schema must be reported, not missing keys
    with pytest.raises(InputError) as caught:
        parse_manifest(json.dumps(document).encode())
    assert str(caught.value) == (
        f"manifest: schema: expected edgekit.bundle/1, found edgekit.bundle/{version}; "
        "build the bundle again with: edgekit compile"
    )


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "..", "a/../b", "./a", "a//b", "a\\b", "a\0", "é", ".a", "-a", "a\n",
             "a/b/c/d/e", "a" * 65],
)  # fmt: skip
def test_unsafe_paths(path: str) -> None:
    assert not safe_path(path)


@given(st.data())
def test_mutated_bytes_are_refused_in_one_line(paper: MakeBundle, data: st.DataObject) -> None:
    mutated = bytearray(paper().manifest.to_json())
    place = data.draw(st.integers(0, len(mutated) - 2))  # the last byte is a newline
    mutated[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InputError) as caught:
        parse_manifest(bytes(mutated))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every node in a document except the root."""
    children: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    for key, child in children:
        yield (*path, key)
        yield from _paths(child, (*path, key))


def _get(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def _replace(document: Any, path: Path, value: Any) -> Any:
    parent = _get(document, path[:-1])
    before, parent[path[-1]] = parent[path[-1]], value
    return before
