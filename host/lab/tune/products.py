"""The matrix products to tune: from a model, from a file, or a spread of common ones."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.common.files import read_file
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.ops import Conv2D, FullyConnected, TransposeConv2D
from edgekit.host.compiler.ir.types import DType, Graph, Node
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import InputError
from edgekit.kb.features import GemmShape, Packed

LARGEST = 2**31 - 1  # of a dimension: the limit of the C code on boards
TIMED_OPERATIONS = 2**32  # per product: tens of milliseconds on a fast core
COUNTED_OPERATIONS = 2**23  # per product on emulated boards, at a tenth of a second each
_MOST_BYTES = 1 << 20  # of a file of shapes
_DTYPES = {DType.F32: "f32", DType.I8: "s8", DType.U8: "u8"}

_FROM_NETWORKS = (  # m, n, k of products in well-known networks, and generally hard ones
    (64, 3136, 64), (128, 784, 1152), (500, 30, 1600), (32, 12544, 27), (1000, 1, 1024),
    (17, 33, 65), (96, 49, 576), (24, 3136, 144), (512, 49, 4608), (1280, 1, 320), (10, 1, 64),
    (1, 1024, 1024), (128, 128, 128), (256, 256, 256), (384, 384, 384), (512, 512, 512),
    (768, 768, 768), (1024, 1024, 1024),
)  # fmt: skip
_VECTOR_LENGTHS = (10, 64, 320, 1000, 3000)
_CHANNELS = (8, 12, 16, 24, 32, 48, 64, 88, 96, 128, 160, 192, 256, 384, 512)
_IMAGES = (4, 6, 7, 8, 12, 14, 16, 24, 28, 32, 48, 56, 64, 112)
_WINDOWS = (1, 1, 1, 9, 9, 25)
_SEED = 1


@dataclass(frozen=True, order=True)
class MatrixProduct:
    """One matrix product with the dtype of A, on a number of threads."""

    shape: GemmShape
    dtype: str = "f32"
    threads: int = 1
    packed: Packed = "none"


def parse_shape(text: str, where: str) -> GemmShape:
    """Parses m,k,n; raises InputError, in which `where` names the source."""
    try:
        m, k, n = (int(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"{where}: expected m,k,n (three whole numbers), found '{text}'; "
            "for example 500,1600,30"
        ) from None
    if not all(1 <= size <= LARGEST for size in (m, k, n)):
        raise InputError(
            f"{where}: expected sizes from 1 to {LARGEST}, found '{text}'; an empty product needs "
            "no method"
        )
    return GemmShape(m, k, n)


def shapes_of_file(path: Path) -> list[GemmShape]:
    """Reads one m,k,n per line; ignores empty lines and comments after #. Raises InputError."""
    try:
        lines = read_file(path, _MOST_BYTES).decode().splitlines()
    except OSError as error:
        raise InputError(f"{path}: expected lines of m,k,n, found: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected lines of m,k,n, found: {error}") from None
    texts = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    found = [parse_shape(text, f"{path}: line {number}") for number, text in texts if text]
    if not found:
        raise InputError(f"{path}: expected lines of m,k,n, found none; for example 500,1600,30")
    return list(dict.fromkeys(found))


def products_of_model(model: Path, threads: int) -> list[MatrixProduct]:
    """The products that a model consists of, largest first; their weights, B, are packed.

    Raises InputError if there are none.
    """
    graph, _ = run_passes(import_model(model))
    pairs = {pair for node in graph.nodes for pair in _of_node(graph, node)}
    found = [MatrixProduct(shape, dtype, threads, "b") for shape, dtype in pairs]
    if not found:
        raise InputError(
            f"{model}: expected a model with convolutions or fully connected layers, found none; "
            "tune other products: --shapes FILE"
        )
    return sorted(found, key=lambda p: (-p.shape.operations, p))


def _of_node(graph: Graph, node: Node) -> Iterator[tuple[GemmShape, str]]:
    """The products of a node, as created by lowering/conv/conv.py and transpose_conv.py."""
    if not isinstance(node.op, Conv2D | FullyConnected | TransposeConv2D):
        return
    x, w, y = (graph.tensors[str(name)] for name in (*node.inputs[:2], node.outputs[0]))
    # Float activations with 8-bit weights are quantized at run time: an int8 product.
    dtype = "s8" if w.dtype is DType.I8 else _DTYPES.get(x.dtype)
    if dtype is None or x.elements == 0:
        return
    if isinstance(node.op, FullyConnected):
        n, k = w.shape
        yield GemmShape(x.elements // k, k, n), dtype
    elif isinstance(node.op, Conv2D):
        yield GemmShape(y.elements // y.shape[3], w.elements // w.shape[0], w.shape[0]), dtype
    else:
        yield GemmShape(x.elements // x.shape[3], x.shape[3], w.elements // w.shape[3]), dtype


def usual_shapes(
    spread: int, packed: Packed = "none", most: int = TIMED_OPERATIONS
) -> list[GemmShape]:
    """Products from networks, and `spread` others, the same on every call.

    Half of the others are convolutions with weights on the `packed` side; half have arbitrary
    proportions. None exceeds `most` operations.
    """
    known = [GemmShape(m=m, n=n, k=k) for m, n, k in _FROM_NETWORKS]
    lengths = itertools.product(_VECTOR_LENGTHS, repeat=2)
    # A vector is never the weights: with A packed, B is the vector, and vice versa.
    vectors = [
        shape
        for length, k in lengths
        for shape, side in ((GemmShape(1, k, length), "b"), (GemmShape(length, k, 1), "a"))
        if packed in ("none", side)
    ]
    fixed = [s for s in (*known, *vectors) if s.operations <= most]
    layers = (s for s in _layer_shapes(packed) if s.operations <= most)
    others = (s for s in _halton_shapes() if s.operations <= most)
    mixed = itertools.chain.from_iterable(zip(layers, others, strict=False))
    return list(dict.fromkeys((*fixed, *itertools.islice(mixed, spread))))


def _layer_shapes(packed: Packed) -> Iterator[GemmShape]:
    """Convolutions of common sizes; the weights are A or B, alternating if neither is packed."""
    source = random.Random(_SEED)
    for i in itertools.count():
        k = source.choice(_WINDOWS) * source.choice((3, *_CHANNELS))
        channels, pixels = source.choice(_CHANNELS), source.choice(_IMAGES) ** 2
        if packed == "a" or (packed == "none" and i % 2):
            yield GemmShape(m=channels, k=k, n=pixels)
        else:
            yield GemmShape(m=pixels, k=k, n=channels)


def _halton_shapes() -> Iterable[GemmShape]:
    """Infinitely many shapes, evenly spread in log space (a Halton sequence).

    Three of four have round sizes, like channel counts in networks.
    """
    for i in itertools.count(1):
        m, k, n = (round(4096 ** _radical_inverse(i, base)) for base in (2, 3, 5))
        if i % 4:
            m, k, n = (_round_size(size) for size in (m, k, n))
        if min(m, n) >= 2:
            yield GemmShape(m, k, n)


def _round_size(size: int) -> int:
    """The nearest multiple of a power of two that is about an eighth of the size."""
    step = 1 << max(int(math.log2(size)) - 2, 0)
    return round(size / step) * step


def _radical_inverse(index: int, base: int) -> float:
    result, digit = 0.0, 1.0 / base
    while index:
        result += (index % base) * digit
        index //= base
        digit /= base
    return result
