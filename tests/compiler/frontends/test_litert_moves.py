"""Operators that move, generate or select values, in every type that LiteRT supports.

Each is built once per type; quantized tensors share one scale, as these operators preserve it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.litert_cases import Operand, Single, check, fixed, given

pytestmark = pytest.mark.peers

_SCALE, _ZERO = 0.1, {"int8": -3, "uint8": 120, "int16": 0}
_ALL = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")

_QUANTIZED = ("float32", "int8", "uint8", "int16")


def _without(*kinds: str) -> tuple[str, ...]:
    return tuple(kind for kind in _ALL if kind not in kinds)


_DEPTH = _without("int16", "bool")


def _values(kind: str, *shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed + sum(shape))
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.startswith("float"):
        return rng.normal(0, 3, shape).astype(kind)
    return rng.integers(0 if kind == "uint8" else -50, 100, shape).astype(kind)


def _data(kind: str, *shape: int, seed: int = 0) -> Operand:
    quantized = kind in _ZERO
    values = _values(kind, *shape, seed=seed)
    return given(values, _SCALE if quantized else 0.0, _ZERO.get(kind, 0))


def _out(kind: str, rank: int = 1) -> Operand:
    return _data(kind, *(1,) * rank)


def _whole(*values: int, kind: str = "int32") -> Operand:
    return fixed(np.array(values, kind))


def _plain(kind: str, *shape: int, seed: int = 0) -> Operand:
    return given(_values(kind, *shape, seed=seed))


def _one(
    code: str,
    shape: tuple[int, ...],
    *more: Operand,
    options: str = "",
    out: tuple[int, ...] = (1,),
    **fields: Any,
) -> Callable[[str], Single]:
    """Builds an operator with one tensor of any type, and constants."""

    def build(kind: str) -> Single:
        ins = [_data(kind, *shape), *more]
        return Single(code, ins, [_data(kind, *out)], options, fields)

    return build


def _split(kind: str) -> Single:
    ins = [_whole(1), _data(kind, 2, 6)]
    return Single("SPLIT", [fixed(np.int32(1)), ins[1]], [_out(kind)] * 3, "SplitOptions",
                  {"NumSplits": 3})  # fmt: skip


def _split_v(kind: str) -> Single:
    ins = [_data(kind, 2, 6), _whole(1, -1, 3), fixed(np.int32(1))]
    return Single("SPLIT_V", ins, [_out(kind)] * 3, "SplitVOptions", {"NumSplits": 3})


def _select(code: str, condition: tuple[int, ...]) -> Callable[[str], Single]:
    def build(kind: str) -> Single:
        ins = [given(_values("bool", *condition)), _data(kind, 3, 4), _data(kind, 3, 4, seed=1)]
        return Single(code, ins, [_out(kind)], f"{code.title().replace('_', '')}Options")

    return build


def _pad_v2(kind: str) -> Single:
    value = _data(kind, 1).value.reshape(())
    scale = (_SCALE, [_ZERO[kind]]) if kind in _ZERO else ()
    ins = [_data(kind, 3, 4), fixed(np.array([[1, 0], [2, 1]], np.int32)), fixed(value, *scale)]
    return Single("PADV2", ins, [_out(kind)], "PadV2Options")


def _pack(kind: str) -> Single:
    ins = [_data(kind, 3, 4, seed=i) for i in range(3)]
    fields = {"ValuesCount": 3, "Axis": 1}
    return Single("PACK", ins, [_out(kind)], "PackOptions", fields)


def _unpack(kind: str) -> Single:
    fields = {"Num": 3, "Axis": 1}
    return Single("UNPACK", [_data(kind, 2, 3)], [_out(kind)] * 3, "UnpackOptions", fields)


def _concatenation(kind: str) -> Single:
    ins = [_data(kind, 3, size) for size in (2, 5, 1)]
    return Single("CONCATENATION", ins, [_out(kind)], "ConcatenationOptions", {"Axis": -1})


def _fill(kind: str) -> Single:
    value = _data(kind, 1)
    shaped = Operand(value.value.reshape(()), False, value.scale, value.zero)
    return Single("FILL", [_whole(2, 3), shaped], [_out(kind)], "FillOptions")


def _range(kind: str) -> Single:
    ends = [fixed(np.array(v, kind)) for v in (3, 17, 4)]
    return Single("RANGE", ends, [given(np.zeros(1, kind))], "RangeOptions")


def _shaped(code: str, options: str) -> Callable[[str], Single]:
    fields = {"OutType": 2} if code == "SHAPE" else {}
    outs = [given(np.zeros(1, np.int32))]
    return lambda kind: Single(code, [_data(kind, 3, 1, 4)], outs, options, fields)


def _broadcast_args(kind: str) -> Single:
    ins = [_whole(1, 4, kind=kind), _whole(3, 1, 1, kind=kind)]
    return Single("BROADCAST_ARGS", ins, [given(np.zeros(3, kind))])


def _cast(kind: str, to: str) -> Single:
    return Single("CAST", [_plain(kind, 3, 5)], [given(np.zeros((3, 5), to))], "CastOptions")


def _gather_nd(kind: str) -> Single:
    ins = [_data(kind, 3, 4, 2), given(np.array([[0, 3], [2, 1]], np.int32))]
    return Single("GATHER_ND", ins, [_out(kind)], "GatherNdOptions")


def _gather(kind: str) -> Single:
    ins = [_data(kind, 3, 4), given(np.array([[0, 3], [2, 1]], np.int32))]
    return Single("GATHER", ins, [_out(kind)], "GatherOptions", {"Axis": 1})


def _scatter_nd(kind: str) -> Single:
    ins = [fixed(np.array([[0, 2], [3, 1]], np.int32)), _data(kind, 2, 5), _whole(4, 3, 5)]
    return Single("SCATTER_ND", ins, [_out(kind)], "ScatterNdOptions")


def _top_k(kind: str) -> Single:
    outs = [_out(kind), given(np.zeros(1, np.int32))]
    distinct = np.random.default_rng(1).permutation(40).reshape(4, 10).astype(kind)
    scale = (_SCALE, _ZERO[kind]) if kind in _ZERO else ()
    ins = [given(distinct, *scale), fixed(np.int32(3))]
    return Single("TOPK_V2", ins, outs, "TopKV2Options")


def _one_hot(kind: str) -> Single:
    values = [fixed(_values(kind, 1, seed=s).reshape(())) for s in (1, 4)]
    ins = [given(np.array([[0, 2, 5], [1, -1, 3]], np.int32)), fixed(np.int32(4)), *values]
    return Single("ONE_HOT", ins, [given(np.zeros(1, kind))], "OneHotOptions", {"Axis": -1})


def _diagonal(kind: str) -> Single:
    ins = [_data(kind, 2, 3, 4), _data(kind, 2, 3)]
    return Single("MATRIX_SET_DIAG", ins, [_out(kind)], "MatrixSetDiagOptions")


def _update(kind: str) -> Single:
    ins = [_data(kind, 3, 5, 4), _data(kind, 2, 2, 4), given(np.array([1, 9, 0], np.int32))]
    return Single("DYNAMIC_UPDATE_SLICE", ins, [_out(kind)], "DynamicUpdateSliceOptions")


def _reverse_sequence(kind: str) -> Single:
    ins = [_data(kind, 3, 4, 5), given(np.array([4, 1, 3], np.int32))]
    fields = {"SeqDim": 1, "BatchDim": 0}
    return Single("REVERSE_SEQUENCE", ins, [_out(kind)], "ReverseSequenceOptions", fields)


def _sparse_to_dense(kind: str) -> Single:
    ins = [fixed(np.array([[0, 1], [2, 3]], np.int32)), _whole(3, 4), _plain(kind, 2)]
    ins.append(fixed(_values(kind, 1).reshape(())))
    return Single("SPARSE_TO_DENSE", ins, [given(np.zeros(1, kind))], "SparseToDenseOptions")


def _where(kind: str) -> Single:
    x = _values(kind, 3, 5)
    x[1] = 0
    return Single("WHERE", [fixed(x)], [given(np.zeros((1, 1), np.int64))], "WhereOptions")


def _unique(kind: str) -> Single:
    x = np.array([3, 5, 3, 1, 5, 9]).astype(kind)
    outs = [given(np.zeros(1, kind)), given(np.zeros(1, np.int32))]
    return Single("UNIQUE", [fixed(x)], outs, "UniqueOptions", {"IdxOutType": 2})


def _add_n(kind: str) -> Single:
    ins = [_plain(kind, 3, 4, seed=i) for i in range(3)]
    return Single("ADD_N", ins, [given(np.zeros((3, 4), kind))], "AddNOptions")


def _quantize(kind: str, to: str) -> Single:
    out = given(np.zeros((5, 9), to), 0.17, _ZERO[to] + 2 * (to != "int16"))
    return Single("QUANTIZE", [_data(kind, 5, 9)], [out], "QuantizeOptions")


def _dequantize(kind: str) -> Single:
    x = _plain(kind, 5, 9) if kind == "float16" else _data(kind, 5, 9)
    make = fixed(x.value) if kind == "float16" else x
    return Single("DEQUANTIZE", [make], [given(np.zeros(1, np.float32))], "DequantizeOptions")


def _embedding(kind: str) -> Single:
    table = fixed(_values(kind, 7, 3), *([_SCALE] if kind in _ZERO else []))
    ids = given(np.array([3, 0, 6, 3], np.int32))
    return Single("EMBEDDING_LOOKUP", [ids, table], [given(np.zeros((1, 1), kind))])


def _segments(code: str) -> Callable[[str], Single]:
    def build(kind: str) -> Single:
        ins = [_plain(kind, 5, 3), fixed(np.array([2, 0, -1, 2, 4], np.int32)), fixed(np.int32(6))]
        options = f"{code.title().replace('_', '')}Options"
        return Single(code, ins, [given(np.zeros((1, 1), kind))], options)

    return build


_SQUARE = fixed(np.array([[1, 0], [1, 1]], np.int32))
BUILDERS: dict[str, tuple[tuple[str, ...], Callable[[str], Single]]] = {
    "ADD_N": (("float32", "int32"), _add_n),
    "BATCH_TO_SPACE_ND": (_ALL, _one(
        "BATCH_TO_SPACE_ND", (4, 3, 2, 3), _whole(2, 2),
        fixed(np.array([[0, 1], [1, 0]], np.int32)),
    )),
    "BROADCAST_ARGS": (("int32", "int64"), _broadcast_args),
    "BROADCAST_TO": (_ALL, _one("BROADCAST_TO", (3, 1, 4), _whole(2, 3, 5, 4))),
    "CONCATENATION": (_ALL, _concatenation),
    "DEPTH_TO_SPACE": (_DEPTH, _one(
        "DEPTH_TO_SPACE", (1, 3, 2, 8), options="DepthToSpaceOptions", BlockSize=2,
    )),
    "DEQUANTIZE": (("int8", "uint8", "int16", "float16"), _dequantize),
    "DYNAMIC_UPDATE_SLICE": (_ALL, _update),
    "EMBEDDING_LOOKUP": (_ALL, _embedding),
    "EXPAND_DIMS": (_ALL, _one("EXPAND_DIMS", (3, 4), _whole(1))),
    "FILL": (_ALL, _fill),
    "GATHER": (_ALL, _gather),
    "GATHER_ND": (_ALL, _gather_nd),
    "MATRIX_DIAG": (_ALL[:-1], _one("MATRIX_DIAG", (2, 4), options="MatrixDiagOptions")),
    "MATRIX_SET_DIAG": (_ALL[:-1], _diagonal),
    "ONE_HOT": (_without("int16"), _one_hot),
    "PACK": (_ALL[:-1], _pack),
    "PADV2": (_ALL, _pad_v2),
    "RANGE": (("float32", "int32", "int64"), _range),
    "RANK": (_ALL, _shaped("RANK", "RankOptions")),
    "RESHAPE": (_ALL, _one("RESHAPE", (3, 4), _whole(2, 6))),
    "REVERSE_SEQUENCE": (_without("int8", "bool"), _reverse_sequence),
    "REVERSE_V2": (_ALL, _one("REVERSE_V2", (3, 4), _whole(1))),
    "SCATTER_ND": (_without("int16"), _scatter_nd),
    "SELECT": (_ALL, _select("SELECT", (3, 4))),
    "SELECT-rows": (_ALL, _select("SELECT", (3,))),
    "SELECT_V2": (_ALL, _select("SELECT_V2", (3, 1))),
    "SHAPE": (_ALL, _shaped("SHAPE", "ShapeOptions")),
    "SLICE": (_ALL, _one("SLICE", (3, 5), _whole(1, 1), _whole(2, -1), out=(2, 4))),
    "SPACE_TO_BATCH_ND": (_ALL, _one("SPACE_TO_BATCH_ND", (1, 3, 2, 2), _whole(2, 2), _SQUARE)),
    "SPACE_TO_DEPTH": (_DEPTH, _one(
        "SPACE_TO_DEPTH", (1, 4, 6, 2), options="SpaceToDepthOptions", BlockSize=2,
    )),
    "SPARSE_TO_DENSE": (_without("int16", "bool"), _sparse_to_dense),
    "SPLIT": (_ALL[:-1], _split),
    "SPLIT_V": (_ALL[:-1], _split_v),
    "SQUEEZE": (_ALL, _one("SQUEEZE", (3, 1, 4), options="SqueezeOptions")),
    "STRIDED_SLICE": (_ALL, _one(
        "STRIDED_SLICE", (5, 6), _whole(1, 5), _whole(5, 0), _whole(2, -1),
        options="StridedSliceOptions",
    )),
    "TILE": (_ALL, _one("TILE", (3, 4), _whole(2, 3))),
    "TOPK_V2": (_ALL[:-1], _top_k),
    "TRANSPOSE": (_ALL, _one("TRANSPOSE", (2, 3, 4), _whole(2, 0, 1))),
    "UNIQUE": (_ALL[:-1], _unique),
    "UNPACK": (_without("int64"), _unpack),
    **{code: (("float32", "int32"), _segments(code)) for code in (
        "UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX",
        "UNSORTED_SEGMENT_MIN",
    )},
    "WHERE": (_without("int16"), _where),
    "ZEROS_LIKE": (
        ("float32", "int32", "int64"), _one("ZEROS_LIKE", (3, 4), options="ZerosLikeOptions"),
    ),
    **{f"CAST-{to}": (_ALL, lambda kind, to=to: _cast(kind, to)) for to in _ALL},
    **{f"QUANTIZE-{to}": (kinds, lambda kind, to=to: _quantize(kind, to))
       for to, kinds in (("int8", _QUANTIZED), ("uint8", _QUANTIZED[:-1]), ("int16", _QUANTIZED))},
}  # fmt: skip
CASES = {
    f"{name}-{kind}": (build, kind) for name, (kinds, build) in BUILDERS.items() for kind in kinds
}


def contents(files) -> list[bytes]:
    return [build(kind).content(files) for build, kind in CASES.values()]


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_litert(files, litert, name):
    build, kind = CASES[name]
    check(files, litert, build(kind))
