"""Which axes operators of ONNX sum over, and how sizes of images follow from each other."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from edgekit.host.compiler.frontends.common.rows import Product, Window
from edgekit.host.compiler.frontends.onnx.einsum import parse_equation
from edgekit.host.compiler.frontends.onnx.file import FileNode
from edgekit.host.compiler.ir.types import Shape, Tensor

_LETTERS = "abcdefghijklmnop"
_RATIO_LIMIT = 64  # largest denominator of a scale


def window_of(node: FileNode, ins: Sequence[Any], axis: int) -> Window | None:
    """How the output length of a node along an axis of its image follows from the input length;
    None if that is not the same for any length."""
    if node.op == "Resize":
        return _window_of_resize(node, ins, axis)
    given = node.attributes
    auto = given.get("auto_pad", "NOTSET")
    pools = node.op in ("AveragePool", "MaxPool")
    kernel = ins[1].shape[2:] if len(ins) > 1 and isinstance(ins[1], Tensor) else None
    kernel = given.get("kernel_shape", kernel)
    if kernel is None or given.get("output_shape"):
        return None
    at, rank = axis - 2, len(kernel)

    def of_axis(name: str, default: int) -> Any:
        return given.get(name, (default,) * rank)[at]

    size = (kernel[at] - 1) * of_axis("dilations", 1) + 1
    pads = given.get("pads", (0,) * (2 * rank))
    around, stride = pads[at] + pads[at + rank], of_axis("strides", 1)
    if auto in ("SAME_UPPER", "SAME_LOWER") and stride == 1 and node.op == "Conv":
        around = size - 1
    elif auto not in ("NOTSET", "VALID"):
        return None
    more = 0
    if pools:
        if not _pools_alike(node, size, stride, pads[at + rank], around):
            return None
        more = stride - 1 if given.get("ceil_mode", 0) else 0
    if node.op == "ConvTranspose":
        return Window(stride, size - stride - around + of_axis("output_padding", 0), 1)
    return Window(1, around - size + stride + more, stride)


def _pools_alike(node: FileNode, size: int, stride: int, behind: int, around: int) -> bool:
    """Whether windows of a pool see filler as they see what is behind the end of the image."""
    given = node.attributes
    if len(node.outputs) > 1:  # indices count filler
        return False
    ceil = bool(given.get("ceil_mode", 0))
    if node.op == "AveragePool" and (ceil or (behind and not given.get("count_include_pad", 0))):
        return False
    return not ceil or (around == 0 and stride <= size)


def _window_of_resize(node: FileNode, ins: Sequence[Any], axis: int) -> Window | None:
    given = node.attributes
    scales = ins[2] if len(ins) > 2 else ins[1]  # operand 1 before opset 11
    mode = given.get("coordinate_transformation_mode", "half_pixel")
    known = isinstance(scales, Tensor) and scales.data is not None and len(ins) < 4
    beyond = given.get("antialias", 0) or given.get("exclude_outside", 0)
    if not known or beyond or mode not in ("asymmetric", "half_pixel", "pytorch_half_pixel"):
        return None
    rank = len(ins[0].shape)
    axes = [a % rank for a in given.get("axes", range(rank))]
    if axis not in axes or scales.data.size != len(axes):
        return Window(1, 0, 1) if axis not in axes else None
    scale = float(scales.data.reshape(-1)[axes.index(axis)])
    ratio = Fraction(scale).limit_denominator(_RATIO_LIMIT)
    # Other scales are rounded, and so are lengths.
    alike = ratio == Fraction(scale) and (mode != "pytorch_half_pixel" or ratio >= 1)
    return Window(ratio.numerator, 0, ratio.denominator) if alike else None


def product_of(node: FileNode, ins: Sequence[Any]) -> Product | None:
    """The product that a node is; None for other operators, or operands that it does not take."""
    given = [t for t in ins if isinstance(t, Tensor)]
    shapes = [t.shape for t in given]
    if node.op == "Einsum":
        equation = node.attributes.get("equation", "")
        terms, result = parse_equation(equation.replace(" ", ""), shapes)
        once = all(len(set(term)) == len(term) for term in terms)
        return _without_ones(terms, result, shapes) if once else None
    if len(given) < 2 or len(given) != len(ins):
        return None
    ranks = [len(shape) for shape in shapes]
    if node.op == "Gemm" and ranks[:2] == [2, 2]:
        a = "ki" if node.attributes.get("transA", 0) else "ik"
        b = "jk" if node.attributes.get("transB", 0) else "kj"
        added = ["ij"[2 - rank :] for rank in ranks[2:] if rank <= 2]
        return _without_ones([a, b, *added], "ij", shapes)
    if node.op == "MatMul" and min(ranks[:2]) >= 2:
        many = _LETTERS[: max(ranks) - 2]
        a, b = many[len(many) + 2 - ranks[0] :], many[len(many) + 2 - ranks[1] :]
        return _without_ones([a + "xz", b + "zy"], many + "xy", shapes)
    return None


def _without_ones(terms: Sequence[str], result: str, shapes: Sequence[Shape]) -> Product:
    made = [
        "".join("." if n == 1 else letter for letter, n in zip(term, shape, strict=True))
        for term, shape in zip(terms, shapes, strict=True)
    ]
    return Product(tuple(made), result)
