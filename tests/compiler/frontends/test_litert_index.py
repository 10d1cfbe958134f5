"""Indexing operators, matrix products and 3-D operators, against LiteRT."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.litert_cases import Single, check, fixed, given

pytestmark = pytest.mark.peers

_RNG = np.random.default_rng(15)
_KINDS = ("float32", "int8", "uint8", "int32", "int64")


def _values(*shape, kind="float32"):
    if kind == "float32":
        return _RNG.normal(0, 3, shape).astype(kind)
    return _RNG.integers(0 if kind == "uint8" else -50, 100, shape).astype(kind)


def _index(values, kind="int32"):
    return np.array(values, kind)


def _none(kind="float32", rank=1):
    return given(np.zeros((1,) * rank, kind))


def _gather(kind, constant, axis, batch, shape=(2, 3, 4, 5), indices=None):
    low = np.random.default_rng(1).integers(0, shape[axis], (2, 3, 2)[-3:] if batch else (2, 3))
    picks = _index(low if indices is None else indices)
    x = given(_values(*shape, kind=kind))
    operand = fixed(picks) if constant else given(picks)
    fields = {"Axis": axis, "BatchDims": batch}
    return Single("GATHER", [x, operand], [_none(kind)], "GatherOptions", fields)


def _segments(code, kind="float32", constant=True):
    ids = _index([2, 0, -1, 2, 4])
    make = fixed if constant else given
    ins = [given(_values(5, 3, kind=kind)), make(ids), fixed(_index(6))]
    return Single(code, ins, [_none(kind)], f"{code.title().replace('_', '')}Options")


def _slice(masks, begin, end, strides, shape=(4, 5, 6)):
    ins = [given(_values(*shape)), *(fixed(_index(v)) for v in (begin, end, strides))]
    return Single("STRIDED_SLICE", ins, [_none()], "StridedSliceOptions", masks)


def _update(starts, kind="float32", part=(2, 2, 4), index="int32"):
    ins = [given(_values(3, 5, 4, kind=kind)), given(_values(*part, kind=kind))]
    ins.append(given(np.array(starts, index)))
    return Single("DYNAMIC_UPDATE_SLICE", ins, [_none(kind)], "DynamicUpdateSliceOptions")


def _product(a, b, adj=(False, False), constant=False):
    fields = {"AdjX": adj[0], "AdjY": adj[1]}
    second = (fixed if constant else given)(_values(*b))
    ins = [given(_values(*a)), second]
    return Single("BATCH_MATMUL", ins, [_none()], "BatchMatMulOptions", fields)


def _wide_product(a, b, out):
    quantized = [_RNG.integers(-(1 << 15), 1 << 15, s).astype(np.int16) for s in (a, b)]
    ins = [given(quantized[0], 0.11, 0), given(quantized[1], 0.013, 0)]
    output = given(np.zeros(1, np.int16), out, 0)
    return Single("BATCH_MATMUL", ins, [output], "BatchMatMulOptions", {"AdjY": True})


def _quantized_product(a, b, adj=(False, False), out=0.9, constant=False):
    quantized = [_RNG.integers(-128, 128, s).astype(np.int8) for s in (a, b)]
    second = fixed(quantized[1], 0.013, [0]) if constant else given(quantized[1], 0.013, -7)
    ins = [given(quantized[0], 0.11, 5), second]
    fields = {"AdjX": adj[0], "AdjY": adj[1]}
    output = given(np.zeros(1, np.int8), out, -9)
    return Single("BATCH_MATMUL", ins, [output], "BatchMatMulOptions", fields)


def _hybrid_product(asymmetric):
    quantized = np.random.default_rng(4).integers(-127, 128, (9, 5)).astype(np.int8)
    x = np.random.default_rng(5).normal(0, 3, (2, 4, 9)).astype(np.float32)
    fields = {"AsymmetricQuantizeInputs": bool(asymmetric)}
    ins = [given(x), fixed(quantized, 0.013, [0])]
    return Single("BATCH_MATMUL", ins, [_none()], "BatchMatMulOptions", fields)


def _ties(code):
    """Rows whose range puts zero points and values half way between two steps."""
    rng = np.random.default_rng(6)
    low = -rng.integers(1, 100, (60, 1)) / rng.choice([1, 2, 5, 10], (60, 1))
    high = rng.integers(1, 100, (60, 1)) / rng.choice([1, 2, 5, 10], (60, 1))
    halves = rng.integers(-260, 260, (60, 15)) / 2 * (high - low) / 255
    x = np.concatenate([low, high, np.clip(halves, low, high)], axis=1).astype(np.float32)
    ins = [given(x), fixed(np.eye(17, dtype=np.int8) * 100, 0.01, [0])]
    fields = {"AsymmetricQuantizeInputs": True}
    if code == "BATCH_MATMUL":
        return Single(code, ins, [_none()], "BatchMatMulOptions", fields)
    return Single(code, [*ins, None], [_none()], "FullyConnectedOptions", fields)


def _volume(stride=(1, 1, 1), same=True, activation=0, dilation=1):
    names = ("StrideD", "StrideH", "StrideW")
    fields = dict(zip(names, stride, strict=True)) | {"Padding": 0 if same else 1}
    fields |= {f"Dilation{d}Factor": dilation for d in "DHW"}
    fields["FusedActivationFunction"] = activation
    return fields


def _conv_3d(**how):
    ins = [given(_values(2, 5, 6, 7, 3)), fixed(_values(3, 2, 3, 3, 4)), fixed(_values(4))]
    return Single("CONV_3D", ins, [_none(rank=5)], "Conv3DOptions", _volume(**how))


def _conv_3d_transpose(size, **how):
    ins = [fixed(_index(size)), fixed(_values(3, 2, 3, 4, 3)), given(_values(2, 3, 4, 5, 3))]
    ins.append(fixed(_values(4)))
    return Single("CONV_3D_TRANSPOSE", ins, [_none(rank=5)], "Conv3DOptions", _volume(**how))


def _given_weights(single):
    """The same with weights and bias as inputs."""
    floats = [o if o.value.dtype != np.float32 else given(o.value) for o in single.ins]
    return dataclasses.replace(single, ins=floats)


def _image_conv(code, w, out=4, **fields):
    x = fixed(_values(2, 7, 6, 3))
    fields = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1} | fields
    options = f"{'Conv2D' if code == 'CONV_2D' else 'DepthwiseConv2D'}Options"
    return Single(
        code, [x, fixed(_values(*w)), fixed(_values(out))], [_none(rank=4)], options, fields
    )


def _transposed(size, bias=True, **fields):
    ins = [fixed(_index((2, *size, 4))), fixed(_values(4, 3, 2, 3)), fixed(_values(2, 4, 5, 3))]
    ins += [fixed(_values(4))] if bias else []
    fields = {"StrideH": 2, "StrideW": 2} | fields
    return Single("TRANSPOSE_CONV", ins, [_none(rank=4)], "TransposeConvOptions", fields)


def _grouped(kind):
    fields = {"Padding": 0, "StrideH": 2, "StrideW": 1}
    fields |= {"DilationHFactor": 1, "DilationWFactor": 1, "FusedActivationFunction": 1}
    if kind == "float32":
        ins = [given(_values(1, 7, 6, 6)), fixed(_values(4, 3, 3, 3)), fixed(_values(4))]
        return Single("CONV_2D", ins, [_none(rank=4)], "Conv2DOptions", fields)
    scales = [0.02, 0.01, 0.03, 0.015]
    w = _RNG.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    bias = _RNG.integers(-900, 900, 4).astype(np.int32)
    ins = [
        given(_RNG.integers(-128, 128, (1, 7, 6, 6)).astype(np.int8), 0.1, 3),
        fixed(w, scales),
        fixed(bias, [0.1 * s for s in scales]),
    ]
    output = given(np.zeros((1, 1, 1, 4), np.int8), 0.4, -5)
    return Single("CONV_2D", ins, [output], "Conv2DOptions", fields)


def _scatter(kind, constant=True):
    at = _index([[0, 2], [3, 1], [0, 2], [1, 0]])
    shape = fixed(_index([4, 3, 5]))
    updates = _values(4, 5, kind=kind) if kind != "bool" else np.eye(4, 5) > 0
    ins = [(fixed if constant else given)(at), given(updates), shape]
    return Single("SCATTER_ND", ins, [_none(kind)], "ScatterNdOptions")


def _sparse(indices, values, kind="float32", shape=(3, 4)):
    ins = [fixed(_index(indices)), fixed(_index(shape)), given(np.array(values, kind))]
    ins.append(fixed(np.array(7, kind)))
    return Single("SPARSE_TO_DENSE", ins, [_none(kind)], "SparseToDenseOptions")


def _one_hot(kind, axis, rank=2):
    picks = _index([[0, 2, 5], [1, -1, 3]])
    ins = [given(picks), fixed(_index(4)), fixed(np.array(9, kind)), fixed(np.array(3, kind))]
    return Single("ONE_HOT", ins, [_none(kind)], "OneHotOptions", {"Axis": axis})


def _reversed(kind, time, batch, lengths):
    ins = [given(_values(3, 4, 5, kind=kind)), given(np.array(lengths, np.int64))]
    fields = {"SeqDim": time, "BatchDim": batch}
    return Single("REVERSE_SEQUENCE", ins, [_none(kind)], "ReverseSequenceOptions", fields)


def _embedding(kind, scale=0.0):
    table = fixed(_values(7, 3, kind=kind), *([scale] if scale else []))
    return Single("EMBEDDING_LOOKUP", [given(_index([3, 0, 6, 3])), table], [_none()])


def _sparse_embedding(combiner, indices, shape, table=(7, 3)):
    at, rng = _index(indices), np.random.default_rng(9)
    ins = [given(_index(rng.integers(0, table[0], len(at)))), given(at), fixed(_index(shape))]
    ins += [given(np.float32(rng.uniform(0.5, 2, len(at)))), fixed(_values(*table))]
    out = _none(rank=len(shape) + len(table) - 2)
    fields = {"Combiner": combiner}
    return Single("EMBEDDING_LOOKUP_SPARSE", ins, [out], "EmbeddingLookupSparseOptions", fields)


def _diagonal(kind, rows, columns):
    ins = [given(_values(2, rows, columns, kind=kind))]
    ins.append(given(_values(2, min(rows, columns), kind=kind)))
    return Single("MATRIX_SET_DIAG", ins, [_none(kind)], "MatrixSetDiagOptions")


def _bucketize(kind):
    fields = {"Boundaries": np.float32([-2.5, 0, 3, 10])}
    x = np.array([-9, -2.5, 0, 2, 3, 11, 10]).astype(kind)
    return Single("BUCKETIZE", [given(x)], [_none("int32")], "BucketizeOptions", fields)


CASES = {
    **{f"gather-{k}": _gather(k, False, 1, 0) for k in _KINDS},
    "gather-constant": _gather("float32", True, -1, 0),
    "gather-batch": _gather("float32", False, 1, 1, (2, 3, 4)),
    "gather-batch-later": _gather("int8", False, 2, 1, (2, 5, 4, 3)),
    "gather-nd": Single(
        "GATHER_ND",
        [given(_values(3, 4, 5)), given(_index([[[0, 3], [2, 1]], [[1, 1], [0, 0]]]))],
        [_none()], "GatherNdOptions",
    ),
    "gather-nd-int8": Single(
        "GATHER_ND", [given(_values(3, 4, kind="int8"), 0.1, 2), fixed(_index([[0, 3], [2, 1]]))],
        [given(np.zeros(1, np.int8), 0.1, 2)], "GatherNdOptions",
    ),
    **{f"scatter-{k}": _scatter(k) for k in (*_KINDS, "bool")},
    "scatter-computed": _scatter("float32", False),
    "sparse-to-dense": _sparse([[0, 1], [2, 3]], [5, 6]),
    "sparse-to-dense-vector": _sparse([1, 3], [5, 6], "int32", (5,)),
    "sparse-to-dense-one-value": _sparse([[0, 1], [2, 3]], 5, "int64"),
    **{f"one-hot-{k}": _one_hot(k, -1) for k in _KINDS},
    "one-hot-first": _one_hot("float32", 0),
    "reverse-sequence": _reversed("float32", 1, 0, [4, 1, 3]),
    "reverse-sequence-int": _reversed("int32", 0, 2, [3, 2, 1, 0, 2]),
    "embedding": _embedding("float32"),
    "embedding-hybrid": _embedding("int8", 0.03),
    **{
        f"embedding-sparse-{combiner}-{name}": _sparse_embedding(combiner, *how)
        for combiner in (0, 1, 2)
        for name, how in (
            ("rows", ([[0, 0], [0, 4], [2, 1], [3, 0], [3, 1], [3, 2]], (5, 6))),
            ("deep", ([[0, 1, 0], [0, 1, 3], [1, 2, 0]], (2, 3, 4), (5, 2, 3))),
            ("one", ([[0], [2]], (3,))),
        )
    },
    **{
        f"unsorted-{code.lower()}-{kind}": _segments(f"UNSORTED_SEGMENT_{code}", kind)
        for code in ("SUM", "PROD", "MAX", "MIN") for kind in ("float32", "int32")
    },
    "unsorted-computed": _segments("UNSORTED_SEGMENT_SUM", constant=False),
    **{
        f"matrix-diag-{k}": Single(
            "MATRIX_DIAG", [given(_values(2, 4, kind=k))], [_none(k)], "MatrixDiagOptions"
        )
        for k in _KINDS
    },
    "matrix-set-diag": _diagonal("float32", 3, 3),
    "matrix-set-diag-wide": _diagonal("float32", 2, 5),
    "matrix-set-diag-high": _diagonal("int32", 5, 2),
    "slice-ellipsis": _slice({"EllipsisMask": 2}, [1, 0, 2], [3, 0, 6], [1, 1, 2]),
    "slice-new-axis": _slice({"NewAxisMask": 2}, [1, 0, 2], [3, 1, 4], [1, 1, 1]),
    "slice-short": _slice({"ShrinkAxisMask": 1}, [1], [2], [1]),
    "slice-both": _slice(
        {"EllipsisMask": 1, "NewAxisMask": 2, "ShrinkAxisMask": 4}, [0, 0, 3], [0, 0, 4], [1] * 3
    ),
    "update": _update([1, 2, 0]),
    "update-over-the-end": _update([9, -3, 2]),
    "update-int8": _update([0, 3, 1], "int8", (3, 1, 2)),
    "update-whole": _update([1, 1, 1], "float32", (3, 5, 4), "int64"),
    **{f"bucketize-{k}": _bucketize(k) for k in ("float32", "int32", "int64")},
    "matmul": _product((2, 3, 4, 5), (2, 3, 5, 6)),
    "matmul-broadcast": _product((3, 1, 4, 5), (2, 5, 6)),
    "matmul-adjoint": _product((2, 5, 4), (2, 6, 5), (True, True)),
    "matmul-constant": _product((2, 3, 4, 5), (5, 6), constant=True),
    "matmul-constant-adjoint": _product((2, 4, 5), (1, 6, 5), (False, True), constant=True),
    "matmul-constant-stack": _product((2, 4, 5), (2, 5, 6), constant=True),
    "matmul-int8": _quantized_product((2, 3, 4, 37), (2, 3, 37, 6)),
    "matmul-int8-adjoint": _quantized_product((2, 9, 4), (2, 70, 9), (True, True)),
    "matmul-int8-coarse": _quantized_product((1, 4, 9), (1, 9, 5), out=0.0004),
    "matmul-int8-constant": _quantized_product((2, 4, 9), (1, 9, 5), constant=True),
    "matmul-int16": _wide_product((2, 3, 4, 37), (2, 3, 70, 37), 190.0),
    "matmul-int16-coarse": _wide_product((2, 4, 300), (1, 5, 300), 17.0),
    **{f"ties-{code}": _ties(code) for code in ("BATCH_MATMUL", "FULLY_CONNECTED")},
    **{f"matmul-hybrid-{asymmetric}": _hybrid_product(asymmetric) for asymmetric in (0, 1)},
    "conv-3d": _conv_3d(),
    "conv-3d-stride": _conv_3d(stride=(2, 1, 2), same=False, activation=1),
    "conv-3d-same-stride": _conv_3d(stride=(2, 3, 1)),
    "conv-3d-transpose": _conv_3d_transpose((2, 3, 4, 5, 4)),
    "conv-3d-transpose-stride": _conv_3d_transpose((2, 6, 8, 5, 4), stride=(2, 2, 1)),
    "conv-3d-transpose-valid": _conv_3d_transpose((2, 7, 5, 7, 4), stride=(2, 1, 1), same=False),
    **{f"computed-{name}": _given_weights(single) for name, single in (
        ("conv", _image_conv("CONV_2D", (4, 3, 2, 3), FusedActivationFunction=1)),
        ("conv-valid", _image_conv("CONV_2D", (4, 3, 2, 3), Padding=1, StrideH=2)),
        ("conv-dilated", _image_conv("CONV_2D", (4, 2, 2, 3), DilationHFactor=2)),
        ("conv-point", _image_conv("CONV_2D", (4, 1, 1, 3))),
        ("depthwise", _image_conv("DEPTHWISE_CONV_2D", (1, 3, 3, 3), 3, DepthMultiplier=1)),
        ("depthwise-two", _image_conv("DEPTHWISE_CONV_2D", (1, 3, 2, 6), 6, DepthMultiplier=2,
                                      StrideW=2, FusedActivationFunction=3)),
        ("conv-3d", _conv_3d()),
        ("conv-3d-stride", _conv_3d(stride=(2, 1, 2), same=False, activation=1)),
        ("conv-3d-transpose", _conv_3d_transpose((2, 6, 8, 5, 4), stride=(2, 2, 1))),
        ("transpose", _transposed((8, 10))),
        ("transpose-odd", _transposed((7, 9), bias=False)),
        ("transpose-valid", _transposed((9, 10), Padding=1)),
        ("transpose-flat", _transposed((4, 5), StrideH=1, StrideW=1)),
    )},
    "conv-grouped": _grouped("float32"),
    "conv-grouped-int8": _grouped("int8"),
}  # fmt: skip


def contents(files) -> list[bytes]:
    return [case.content(files) for case in CASES.values()]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_agrees_with_litert(files, litert, case):
    check(files, litert, case)


@pytest.mark.parametrize(
    "case",
    [
        _sparse_embedding(0, [[0, 0]], (1 << 20, 4), (2, 1 << 10)),
        _sparse_embedding(0, [[0, 0]], (5, 6, 7)),
        _sparse_embedding(3, [[0, 0]], (5, 6)),
        _sparse_embedding(0, [[0, 0]], (5, 6), (9,)),
        _sparse_embedding(0, [[0, 0]], (0, 6)),
        _sparse_embedding(0, np.zeros((0, 2)), (5, 6)),
    ],
)
def test_sums_of_rows_without_sense_are_refused(files, case):
    with pytest.raises(InputError, match="expected"):
        graph_from_tflite(case.content(files), "m")


def test_segments_are_summed(files):
    """LiteRT's reference resolver has no SEGMENT_SUM."""
    x, ids = _values(5, 3), _index([0, 0, 1, 3, 3])
    single = Single("SEGMENT_SUM", [given(x), fixed(ids)], [_none()], "SegmentSumOptions")
    y = evaluate(graph_from_tflite(single.content(files), "m"), single.inputs()).outputs["y0"]
    wanted = [x[ids == i].astype(np.float64).sum(axis=0) for i in range(4)]
    np.testing.assert_allclose(y, wanted, rtol=1e-6)
