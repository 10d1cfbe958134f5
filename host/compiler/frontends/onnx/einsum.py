"""Import of ONNX Einsum: operands are combined pairwise, left to right, by batched products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.host.compiler.frontends.onnx.call import OnnxCall
from edgekit.host.compiler.frontends.onnx.product import product
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Shape, ShapeError, Tensor

_LETTERS = 64  # distinct letters in an equation


@dataclass(frozen=True)
class _Term:
    """A tensor with one distinct letter per axis."""

    x: Tensor
    letters: str

    def size(self, letter: str) -> int:
        return self.x.shape[self.letters.index(letter)]


def einsum(call: OnnxCall) -> Tensor:
    given = call.all()
    terms, out = parse_equation(call.text("equation").replace(" ", ""), [x.shape for x in given])
    joined, *rest = [_take_diagonals(call, x, t) for x, t in zip(given, terms, strict=True)]
    for i, term in enumerate(rest):
        later = {*out, *(s for t in rest[i + 1 :] for s in t.letters)}
        joined = _contract_pair(
            call, _sum_unkept(call, joined, later | {*term.letters}),
            _sum_unkept(call, term, later | {*joined.letters}), later,
        )  # fmt: skip
    joined = _sum_unkept(call, joined, {*out})
    if sorted(joined.letters) != sorted(out):
        raise ShapeError(f"expected letters of the operands on the right, found {out!r:.40}")
    return call.transpose(joined.x, [joined.letters.index(s) for s in out])


def parse_equation(equation: str, shapes: Sequence[Shape]) -> tuple[list[str], str]:
    """A letter per axis of each operand, and the letters of the result. Axes covered by `...` get
    Greek letters, which no equation may contain."""
    left, arrow, out = equation.partition("->")
    names = left.split(",")
    if len(names) != len(shapes) or not set(equation) <= {*",.->"} | {*map(chr, range(65, 123))}:
        raise ShapeError(f"expected an equation of {len(shapes)} operands, found {equation!r:.40}")
    dots = max(
        (len(s) - len(n.replace("...", "")) for n, s in zip(names, shapes, strict=True)
         if "..." in n), default=0,
    )  # fmt: skip
    greek = "".join(chr(0x3B1 + i) for i in range(max(dots, 0)))
    terms = []
    for name, shape in zip(names, shapes, strict=True):
        own = len(shape) - len(name.replace("...", ""))
        letters = name.replace("...", greek[len(greek) - own :] if own > 0 else "")
        if len(letters) != len(shape) or "." in letters:
            raise ShapeError(f"expected a letter per axis of {list(shape)}, found {name!r:.40}")
        terms.append(letters)
    every = "".join(terms)
    if not arrow:
        once = sorted(s for s in set(every) if every.count(s) == 1 and s not in greek)
        return terms, greek + "".join(once)
    out = out.replace("...", greek)
    if len(set(out)) != len(out) or len(set(every)) > _LETTERS:
        raise ShapeError(f"expected different letters on the right, found {equation!r:.40}")
    return terms, out


def _take_diagonals(call: OnnxCall, x: Tensor, letters: str) -> _Term:
    """Merges axes with the same letter: takes every (n + 1)-th element of the flattened pair."""
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            i, j = letters.index(letter), letters.rindex(letter)
            n, rest = x.shape[i], [k for k in range(len(letters)) if k not in (i, j)]
            if x.shape[j] != n:
                raise ShapeError(f"expected axes of one size for {letter}, found {list(x.shape)}")
            lead = tuple(x.shape[k] for k in rest)
            flat = call.reshape(call.transpose(x, [*rest, i, j]), (*lead, n * n))
            shape, steps = (*lead, n), (*(1,) * len(lead), n + 1)
            x = call.emit(ops.StridedSlice((0,) * len(shape), steps, shape, shape), flat)
            letters = "".join(letters[k] for k in rest) + letter
    return _Term(x, letters)


def _sum_unkept(call: OnnxCall, term: _Term, kept: set[str]) -> _Term:
    x, letters = term.x, term.letters
    for letter in letters:
        if letter not in kept:
            x = call.emit(ops.ReduceSum((letters.index(letter),)), x)
            letters = letters.replace(letter, "")
    return _Term(x, letters)


def _contract_pair(call: OnnxCall, a: _Term, b: _Term, kept: set[str]) -> _Term:
    """Sums over shared letters that are not kept: [batch, m, k] · [batch, k, n], or [m, k] · [k, n]
    without a batch. A constant operand comes second, as weights."""
    if a.x.data is not None:
        a, b = b, a
    for letter in {*a.letters} & {*b.letters}:
        if a.size(letter) != b.size(letter):
            raise ShapeError(
                f"expected one size for {letter}, found {a.size(letter)} and {b.size(letter)}"
            )
    batch = [s for s in a.letters if s in b.letters and s in kept]
    inner = [s for s in a.letters if s in b.letters and s not in kept]
    rows = [s for s in a.letters if s not in b.letters]
    columns = [s for s in b.letters if s not in a.letters]

    def stack(t: _Term, *groups: Sequence[str]) -> Tensor:
        order = [t.letters.index(s) for g in groups for s in g]
        shape = tuple(math.prod(t.size(s) for s in g) for g in groups)
        return call.reshape(call.transpose(t.x, order), shape)

    lead = [batch] if batch else []
    y = product(call, stack(a, *lead, rows, inner), stack(b, *lead, inner, columns))
    sizes = [*(a.size(s) for s in (*batch, *rows)), *(b.size(s) for s in columns)]
    return _Term(call.reshape(y, tuple(sizes)), "".join([*batch, *rows, *columns]))
