"""compile --state: state that a model passes to its next run stays on the board."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgekit.host import compile_model
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from tests.support.decoder import CONTEXT, TIES, TOKENS, decoded_by_hand, decoder_model
from tests.support.onnx_models import model, node, save, value

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]

_TIES = tuple(text for t in TIES for text in ("--state", f"{t.input}={t.output}"))


@pytest.fixture
def decoder(home: Path) -> Path:
    return save(decoder_model(), home)


def _outputs_in_turn(
    edgekit: Any, bundle: str, rows: Mapping[str, Array], *options: str
) -> list[dict[str, Any]]:
    """Outputs of one run per row of the inputs, all in one session."""
    folder = Path("rows")
    folder.mkdir(exist_ok=True)
    for i in range(len(next(iter(rows.values())))):
        np.savez(folder / f"{i}.npz", **{name: values[i] for name, values in rows.items()})
    done = edgekit("run", bundle, "--input", folder, "--output", "-", *options)
    assert done.code == 0, done.err
    return [run["outputs"] for run in done.document["runs"]]


def _in_turn(edgekit: Any, bundle: str, rows: Mapping[str, Array], *options: str) -> Array:
    """Like `_outputs_in_turn`, for a model with one output."""
    made = _outputs_in_turn(edgekit, bundle, rows, *options)
    assert all(len(each) == 1 for each in made)
    return np.array([next(iter(each.values())) for each in made], np.float32)


def _decoded(edgekit: Any, bundle: str, *options: str) -> Array:
    return _in_turn(edgekit, bundle, {"token": TOKENS[:, None]}, *options)


def _write_samples() -> None:
    """Writes `samples.npz` with all inputs of the model file, including future states."""
    rows = np.random.default_rng(1).standard_normal((12, 3, CONTEXT, 5)).astype(np.float32)
    inputs = {"token": np.arange(12)[:, None] % 11, "position": np.arange(12)[:, None] % CONTEXT}
    np.savez("samples.npz", **inputs, **{"past.key": rows, "past.value": rows[::-1]})


def test_a_decoder_keeps_its_cache(edgekit: Any, decoder: Path) -> None:
    done = edgekit("compile", decoder, *_TIES, "-o", "d.ekb")
    assert done.code == 0, done.err
    expected = decoded_by_hand(decoder, TOKENS)
    again = decoded_by_hand(decoder, TOKENS[3:4])[0]
    assert not np.allclose(expected[1], expected[3], atol=0.05)  # same token, different history
    np.testing.assert_allclose(_decoded(edgekit, "d.ekb"), expected, atol=1e-5)
    np.testing.assert_allclose(_decoded(edgekit, "d.ekb"), expected, atol=1e-5)  # a new session
    fresh = _decoded(edgekit, "d.ekb", "--reset-each")
    np.testing.assert_allclose(fresh[3], again, atol=1e-5)


@pytest.mark.exhaustive
def test_fewer_bits_keep_it_too(edgekit: Any, decoder: Path) -> None:
    few = (
        "--weights",
        "int8",
    )
    done = edgekit("compile", decoder, *_TIES, *few, "-o", "d.ekb")
    assert done.code == 0, done.err
    assert "golden outputs have a cosine" in done.err
    expected, made = decoded_by_hand(decoder, TOKENS), _decoded(edgekit, "d.ekb")
    assert not np.array_equal(made, expected)
    np.testing.assert_allclose(made, expected, atol=0.1)


def test_samples_name_the_inputs_that_become_states(edgekit: Any, decoder: Path) -> None:
    _write_samples()
    few = ("--weights", "int8", "--samples", "samples.npz")
    done = edgekit("compile", decoder, *_TIES, *few, "-o", "d.ekb")
    assert done.code == 0, done.err
    assert "fitted to samples: on 3 held-out samples" in done.err
    made = _decoded(edgekit, "d.ekb")
    np.testing.assert_allclose(made, decoded_by_hand(decoder, TOKENS), atol=0.1)


def test_eight_bits_keep_it_too(edgekit: Any, decoder: Path) -> None:
    _write_samples()
    done = edgekit("compile", decoder, *_TIES, "--samples", "samples.npz", "-o", "d.ekb")
    assert done.code == 0, done.err
    made = _decoded(edgekit, "d.ekb")
    np.testing.assert_allclose(made, decoded_by_hand(decoder, TOKENS), atol=0.3)


def test_python_keeps_it_too(decoder: Path) -> None:
    bundle = compile_model(decoder, states={tie.input: tie.output for tie in TIES})
    assert [spec.name for spec in bundle.manifest.inputs] == ["token"]
    assert [spec.name for spec in bundle.manifest.outputs] == ["logits"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("past.key", "expected INPUT=OUTPUT, with one * in both or in neither, found past.key="),
        ("=next", "expected INPUT=OUTPUT, with one * in both or in neither, found =next"),
        ("past.*=next", "with one * in both or in neither, found past.*=next"),
        ("*.*=*.*", "with one * in both or in neither, found *.*=*.*"),
        (
            "cache=next",
            "expected an input of the model (token, position, past.key, past.value), found cache",
        ),
        ("cache*=next*", "(token, position, past.key, past.value), found cache*"),
        (
            "position=there",
            "expected an output of the model (logits, next, present.key, present.value), "
            "found there",
        ),
        ("past.*=future.*", "present.key, present.value), found future.key"),
        (
            "past.key=logits",
            "expected past.key and logits of one fixed shape and type, "
            "found f32[3, 9, 5] and f32[1, 11]",
        ),
    ],
)
def test_an_invalid_state_is_one_line(
    edgekit: Any, decoder: Path, given: str, message: str
) -> None:
    done = edgekit("compile", decoder, "--state", given)
    assert done.code == 2
    assert "--state: " in done.complaint
    assert message in done.complaint


def test_each_end_is_kept_once(edgekit: Any, decoder: Path) -> None:
    for ties in (
        ("past.key=present.key", "past.*=present.*"),
        ("past.key=present.key", "past.value=present.key"),
    ):
        asked = [text for tie in ties for text in ("--state", tie)]
        done = edgekit("compile", decoder, *asked)
        assert done.code == 2
        assert "expected each input and output once" in done.complaint
        assert "and past.key=present.key" in done.complaint


def test_a_cache_that_grows_is_refused(edgekit: Any, home: Path) -> None:
    file = save(decoder_model(CONTEXT - 1), home)
    done = edgekit("compile", file, *_TIES)
    assert done.code == 2
    assert "f32[3, 9, 5] and f32[3, 8, 5]; for a growing cache, export a model" in done.complaint


def test_two_states_change_places(edgekit: Any, home: Path) -> None:
    """Each state gets the other's old value, so both are read before either is written."""
    nodes = [
        node("Add", ["a", "x"], ["b_next"]),
        node("Identity", ["b"], ["a_next"]),
        node("Sub", ["a", "b"], ["y"]),
    ]
    inputs = [value(n, [4]) for n in ("x", "a", "b")]
    file = save(model(nodes, inputs, ["y", "a_next", "b_next"]), home)
    ties = ("--state", "*=*_next")
    assert edgekit("compile", file, *ties).code == 2  # there is no output x_next
    ties = ("--state", "a=a_next", "--state", "b=b_next")
    done = edgekit("compile", file, *ties, "-o", "s.ekb")
    assert done.code == 0, done.err
    x = np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32)
    made = _in_turn(edgekit, "s.ekb", {"x": x})
    a, b, expected = np.zeros(4, np.float32), np.zeros(4, np.float32), []
    for each in x:
        expected.append(a - b)
        a, b = b, a + each
    np.testing.assert_allclose(made, expected, atol=1e-6)


def test_an_output_must_remain(edgekit: Any, home: Path) -> None:
    file = save(model([node("Neg", ["x"], ["y"])], [value("x", [4])], ["y"]), home)
    done = edgekit("compile", file, "--state", "x=y")
    assert done.code == 2
    assert "expected an output that is not a state, found none" in done.complaint


_ROWS, _RUN = 40, 3000  # large enough that copying the state takes several tasks


def _cached(home: Path, *more: Any, updates: str = "x", outputs: tuple[str, ...] = ()) -> Path:
    """A model that writes one row of its state, at index `at`; y is the sum of all rows."""
    nodes = [
        node("ScatterND", ["s", "at", updates], ["s_next"]),
        node("ReduceSum", ["s_next", "axis"], ["y"], keepdims=0),
        *more,
    ]
    constants = {"axis": np.array([0], np.int64), "last": np.array([[-1]], np.int64)}
    inputs = [value("x", [1, _RUN]), value("at", [1, 1], "s64"), value("s", [_ROWS, _RUN])]
    return save(model(nodes, inputs, ["y", "s_next", *outputs], constants), home)


def _copies(edgekit: Any, home: Path, file: Path) -> list[str]:
    """Compiles with the state; returns the state reads and writes that need a kernel."""
    asked = ("--state", "s=s_next", "-o", "s.ekb", "--explain", "e.json")
    done = edgekit("compile", file, *asked)
    assert done.code == 0, done.err
    found = json.loads((home / "e.json").read_text())["operators"]
    return [o["op"] for o in found if o["op"].endswith("state") and o["kernel"]]


_X = np.random.default_rng(5).standard_normal((5, 1, _RUN)).astype(np.float32)
_AT = np.array([3, 39, 3, 0, -2], np.int64).reshape(5, 1, 1)


def test_only_the_rows_of_a_cache_are_written(edgekit: Any, home: Path) -> None:
    assert _copies(edgekit, home, _cached(home)) == []
    made = _in_turn(edgekit, "s.ekb", {"x": _X, "at": _AT})
    state, expected = np.zeros((_ROWS, _RUN), np.float32), []
    for x, at in zip(_X, _AT, strict=True):
        state[at[0, 0]] = x
        expected.append(state.sum(axis=0))
    np.testing.assert_allclose(made, expected, atol=1e-5)


def test_a_cache_that_is_read_as_it_was_is_copied(edgekit: Any, home: Path) -> None:
    old = node("GatherND", ["s", "at"], ["was"])
    both = [old, node("Add", ["y", "was"], ["z"])]
    assert _copies(edgekit, home, _cached(home, *both, outputs=("z",))) != []
    graph = import_model(home / "m.onnx")
    state, expected = np.zeros((_ROWS, _RUN), np.float32), []
    for x, at in zip(_X, _AT, strict=True):
        found = evaluate(graph, {"x": x, "at": at, "s": state}).outputs
        state = found["s_next"]
        expected.append(found["z"])
    made = _outputs_in_turn(edgekit, "s.ekb", {"x": _X, "at": _AT})
    np.testing.assert_allclose([each["z"] for each in made], expected, atol=1e-5)


def test_a_row_of_the_cache_itself_is_copied(edgekit: Any, home: Path) -> None:
    file = _cached(home, updates="s_last")
    proto = onnx.load(file)
    proto.graph.node.insert(0, node("GatherND", ["s", "last"], ["s_end"]))
    proto.graph.node.insert(1, node("Add", ["s_end", "x"], ["s_last"]))
    assert _copies(edgekit, home, save(proto, home)) != []
    made = _in_turn(edgekit, "s.ekb", {"x": _X, "at": _AT})
    state, expected = np.zeros((_ROWS, _RUN), np.float32), []
    for x, at in zip(_X, _AT, strict=True):
        state[at[0, 0]] = state[-1] + x[0]
        expected.append(state.sum(axis=0))
    np.testing.assert_allclose(made, expected, atol=1e-5)
