"""StableHLO's indexing, scatter and reduction operators, against LiteRT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.litert_cases import Single, check, fixed, given

pytestmark = pytest.mark.peers

_KINDS = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")


def _values(kind, *shape):
    values = np.random.default_rng(7).integers(-20, 20, shape)
    return values > 0 if kind == "bool" else (values + 20 * (kind == "uint8")).astype(kind)


def _wide(*values):
    return np.array(values, np.int64)


@dataclass(frozen=True, eq=False)
class WithRegion:
    """A case whose operator calls a subgraph, consisting of the operator `region` or empty."""

    single: Single
    option: str
    region: str

    def content(self, files: Any) -> bytes:
        single, kind = self.single, self.single.outs[0]
        fields = {**single.fields, self.option: 1}
        whole = Single(single.code, single.ins, single.outs, single.options, fields)
        return bytes(whole.content(files, (_region(files, kind.value.dtype, self.region),)))

    def inputs(self) -> dict[str, Any]:
        return self.single.inputs()

    @property
    def fast(self) -> bool:
        return self.single.fast


def _region(files, kind, name):
    type_ = {"bool": "BOOL", "uint8": "UINT8"}.get(kind.name, kind.name.upper())
    tensors = [files.tensor(n, [], type_) for n in ("a", "b", "c")]
    nodes = [files.op(name, ["a", "b"], ["c"])] if name else []
    return files.graph(tensors, nodes, ["a", "b"], ["c" if name else "b"])


def _gather(
    kind, indices, sizes, offsets, collapsed, axes, vector, shape=(4, 5, 6), constant=False
):
    fields = {
        "OffsetDims": _wide(*offsets), "CollapsedSliceDims": _wide(*collapsed),
        "StartIndexMap": _wide(*axes), "IndexVectorDim": vector, "SliceSizes": _wide(*sizes),
    }  # fmt: skip
    ins = [given(_values(kind, *shape)), (fixed if constant else given)(indices)]
    indices_rank = len(indices.shape) - (vector < len(indices.shape))
    out = given(np.zeros((1,) * (indices_rank + len(offsets)), kind))
    return Single("STABLEHLO_GATHER", ins, [out], "StablehloGatherOptions", fields)


_ROWS = np.array([[0, 2], [3, 4], [9, -3]], np.int32)
GATHERS = {
    **{f"rows-{k}": _gather(k, _ROWS, (1, 1, 6), (1,), (0, 1), (0, 1), 1) for k in _KINDS},
    "transposed": _gather("float32", _ROWS, (1, 2, 6), (0, 2), (0,), (1, 0), 1),
    "windows": _gather("int32", _ROWS, (2, 5, 3), (1, 2, 3), (), (0, 2), 1),
    "vector-first": _gather("float32", _ROWS.T.copy(), (2, 1, 3), (0, 1), (1,), (0, 2), 0),
    "numbers": _gather("int8", _wide([1], [9], [-(1 << 40)], [3]), (4, 1, 6), (0, 2), (1,), (1,),
                       1),
    "grid": _gather("int64", _wide([[0], [1]], [[4], [2]]), (1, 5, 6), (1, 3), (0,), (0,), 2),
    "one": _gather("float32", _wide(1, 2), (1, 2, 6), (0, 1), (0,), (0, 1), 0),
    "whole": _gather("float32", _wide(1, 2), (4, 5, 6), (0, 1, 2), (), (0, 1), 0),
    "constant": _gather("float32", _ROWS, (2, 2, 2), (1, 2, 3), (), (0, 1), 1, constant=True),
}  # fmt: skip


def _scatter(kind, region, indices, updates, window, inserted, axes, vector, shape=(4, 5, 6)):
    fields = {
        "UpdateWindowDims": _wide(*window), "InsertedWindowDims": _wide(*inserted),
        "ScatterDimsToOperandDims": _wide(*axes), "IndexVectorDim": vector,
    }  # fmt: skip
    ins = [given(_values(kind, *shape)), given(indices), given(_values(kind, 9, *updates)[4])]
    out = given(np.zeros(shape, kind))
    single = Single("STABLEHLO_SCATTER", ins, [out], "StablehloScatterOptions", fields)
    return WithRegion(single, "UpdateComputationSubgraphIndex", region)


_AGAIN = np.array([[0, 2], [3, 4], [0, 2], [9, 1], [1, -1]], np.int32)
_REGIONS = ("", *(f"STABLEHLO_{n}" for n in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM")))
SCATTERS = {
    **{
        f"rows-{k}-{r}": _scatter(k, r, _AGAIN, (5, 6), (1,), (0, 1), (0, 1), 1)
        for k in _KINDS for r in _REGIONS
    },
    "points": _scatter("float32", _REGIONS[1], _wide([1], [0], [1], [7]), (4,), (), (0,), (0,), 1,
                       (3,)),
    "transposed": _scatter("float32", "", _AGAIN, (6, 2, 5), (0, 1), (0,), (2, 0), 1, (4, 6, 3)),
    "windows": _scatter("int32", _REGIONS[1], _AGAIN, (5, 2, 3, 4), (1, 2, 3), (), (0, 1), 1),
    "reaching-out": _scatter("int32", "", _AGAIN, (3, 5, 4), (0, 2), (0,), (0, 1), 1),
    "columns": _scatter("float32", "", _wide([5], [1], [-2]), (4, 3, 5), (0, 2), (2,), (2,), 1),
    "vector-first": _scatter("float32", "", _AGAIN.T.copy(), (5, 6), (1,), (0, 1), (1, 0), 0),
    "one": _scatter("float32", "", _wide(1, 3), (2, 6), (0, 1), (0,), (0, 1), 0),
    "far": _scatter("int8", "", _wide([1 << 40, 1], [1, -(1 << 62)], [2, 3]), (3, 2, 6), (1, 2),
                    (0,), (0, 1), 1),
}  # fmt: skip


def _windows(kind, region, sizes, strides=(), dilations=(), between=(), around=(), initial=0,
             shape=(3, 9, 8)):  # fmt: skip
    fields = {"WindowDimensions": _wide(*sizes)}
    others = {"WindowStrides": strides, "WindowDilations": dilations, "BaseDilations": between}
    rank = len(shape)
    fields |= {name: _wide(*(v or (1,) * rank)) for name, v in others.items()}
    fields["Padding"] = _wide(*(around or (0,) * 2 * rank)).reshape(-1)
    ins = [given(_values(kind, *shape)), fixed(np.array(initial, kind))]
    out = given(np.zeros((1,) * rank, kind))
    single = Single("STABLEHLO_REDUCE_WINDOW", ins, [out], "StablehloReduceWindowOptions", fields)
    return WithRegion(single, "BodySubgraphIndex", region)


_WHOLE = ("float32", "int8", "uint8", "int16", "int32", "int64")
WINDOWS = {
    **{
        f"{region}-{kind}": _windows(
            kind, region, (1, 3, 2), (1, 2, 1), (1, 1, 2), (1, 1, 2), (0, 1, 1, 1, -1, 2), 3
        )
        for kind, regions in (
            *((k, ("ADD", "MUL", "MAXIMUM", "MINIMUM")) for k in _WHOLE),
            ("int32", _REGIONS[1:]),
            ("bool", ("LOGICAL_AND", "LOGICAL_OR")),
        )
        for region in regions
    },
    "plain": _windows("float32", "MAXIMUM", (1, 3, 3), (1, 2, 2), initial=-99),
    "all": _windows("int32", "ADD", (3, 9, 8)),
    "cumulative": _windows("int32", "ADD", (1, 100), around=(0, 0, 99, 0), shape=(2, 100)),
    "long": _windows("int16", "MUL", (37,), (3,), (2,), shape=(211,), initial=1),
    "long-floats": _windows("float32", "ADD", (21,), (2,), (2,), shape=(90,)),
    "pool": _windows(
        "float32",
        "MAXIMUM",
        (1, 3, 2, 1),
        (1, 2, 1, 1),
        initial=-np.inf,
        around=(0, 0, 0, 1, 1, 0, 0, 0),
        shape=(2, 7, 8, 3),
    ),
    "pool-planes": _windows(
        "float32",
        "MAXIMUM",
        (1, 1, 3, 3),
        (1, 1, 2, 2),
        initial=-2,
        around=(0, 0, 0, 0, 1, 1, 2, 2),
        shape=(2, 3, 7, 9),
    ),
    "no-pool": _windows(
        "float32", "MAXIMUM", (2, 1, 3, 3), around=(0, 0, 0, 0, 1, -1, 3, 2), shape=(2, 3, 7, 9)
    ),
    "one": _windows("float32", "ADD", (1, 1, 1), initial=2),
}


def _bits(kind, algorithm, *shape, state=(0x0123456789ABCDEF, 0xFFFFFFFD), constant=False):
    key = np.array(state, np.uint64)
    outs = [
        given(np.zeros(key.shape, np.uint64)),
        given(np.broadcast_to(np.zeros((), kind), shape)),
    ]
    fields, ins = {"Algorithm": algorithm}, [(fixed if constant else given)(key)]
    options = "StablehloRngBitGeneratorOptions"
    return Single("STABLEHLO_RNG_BIT_GENERATOR", ins, outs, options, fields)


_LONG = (0xFEDCBA9876543210, (1 << 64) - 2, 0x00C0FFEE12345678)
BITS = {
    **{
        f"{algorithm}-{kind}": _bits(kind, algorithm, 3, 7)
        for algorithm in (0, 1, 2) for kind in ("int32", "uint32", "int64", "uint64")
    },
    **{f"long-{kind}": _bits(kind, 1, 13, state=_LONG) for kind in ("int32", "uint64")},
    "one": _bits("uint32", 2, 1),
    "threefry-over": _bits("uint32", 2, 9, state=_LONG[:2]),
}  # fmt: skip


def contents(files) -> list[bytes]:
    tables = (GATHERS, SCATTERS, WINDOWS, BITS)
    return [case.content(files) for table in tables for case in table.values()]


@pytest.mark.parametrize("case", GATHERS.values(), ids=GATHERS.keys())
def test_windows_are_gathered(files, litert, case):
    check(files, litert, case, near=0)


@pytest.mark.parametrize("case", SCATTERS.values(), ids=SCATTERS.keys())
def test_windows_are_scattered(files, litert, case):
    check(files, litert, case, near=0)


@pytest.mark.parametrize("case", WINDOWS.values(), ids=WINDOWS.keys())
def test_windows_are_joined(files, litert, case):
    check(files, litert, case, near=1e-6)


@pytest.mark.parametrize("case", BITS.values(), ids=BITS.keys())
def test_bits_follow_from_a_state(files, litert, case):
    check(files, litert, case)


@pytest.mark.parametrize("name", ["pool", "pool-planes"])
def test_pools_of_images_are_pools(files, name):
    nodes = graph_from_tflite(WINDOWS[name].content(files), "m").nodes
    assert [n.op.kind for n in nodes if n.op.kind != "transpose"] == ["max_pool2d", "maximum"]


def test_indices_may_have_no_axis_of_tuples(files):
    """LiteRT reads out of bounds in this case, so NumPy is the reference."""
    at, window = _wide([0, 1], [4, 2]), ((1, 5, 6), (1, 3), (0,), (0,), 2)
    single = _gather("int32", at, *window)
    found = evaluate(graph_from_tflite(single.content(files), "m"), single.inputs()).outputs["y0"]
    x = single.inputs()["x0"]
    np.testing.assert_array_equal(found, x[np.minimum(at, 3)].transpose(0, 2, 1, 3))


@pytest.mark.parametrize(
    "case",
    [
        _gather("int32", _ROWS, (1, 1, 7), (1,), (0, 1), (0, 1), 1),
        _gather("int32", _ROWS, (1, 2, 6), (1,), (0, 1), (0, 1), 1),
        _gather("int32", _ROWS, (1, 1, 6), (1,), (0, 1), (0, 3), 1),
        _gather("int32", _ROWS, (1, 1, 6), (1,), (0, 1), (0, 1), 0),
        _gather("int32", _ROWS, (1, 1, 6), (7,), (0, 1), (0, 1), 1),
        _gather("int32", _ROWS, (1, 1, 6), (1, 1), (0, 1), (0, 1), 1),
        _gather("int32", _ROWS.astype(np.float32), (1, 1, 6), (1,), (0, 1), (0, 1), 1),
        _windows("int32", "SUB", (1, 2, 2)),
        _windows("bool", "ADD", (1, 2, 2)),
        _windows("int32", "ADD", (1, 2, 9)),
        _windows("int32", "ADD", (1, 2)),
        _windows("int32", "ADD", (1, 2, 2), (1, 0, 1)),
        _windows("int32", "ADD", (1, 2, 2), between=(1, -1, 1)),
        _windows("int32", "ADD", (1, 2, 2), around=(0, 0, 1 << 40, 0, 0, 0)),
        _windows("int32", "ADD", (1, 2, 2), around=(1, 2)),
        _bits("int32", 3, 4),
        _bits("int32", 2, 4, state=_LONG),
        _bits("int32", 1, 4, state=(1,)),
        _bits("float32", 1, 4),
        _bits("int32", 1, 1 << 14, 1 << 14),
        _scatter("int32", "SUB", _AGAIN, (5, 6), (1,), (0, 1), (0, 1), 1),
        _scatter("int32", "", _AGAIN, (5, 7), (1,), (0, 1), (0, 1), 1),
        _scatter("int32", "", _AGAIN, (4, 6), (1,), (0, 1), (0, 1), 1),
        _scatter("int32", "", _AGAIN, (5, 6), (2,), (0, 1), (0, 1), 1),
        _scatter("int32", "", _AGAIN, (5, 6), (1,), (0, -1), (0, 1), 1),
    ],
)  # fmt: skip
def test_options_without_sense_are_refused(files, case):
    with pytest.raises(InputError, match="expected"):
        graph_from_tflite(case.content(files), "m")
