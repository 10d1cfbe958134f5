"""The products that `edgekit lab tune gemm` tunes, as its options name them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgekit.host.cli.options import check_regular
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.compiler.costs.methods.gemm import Method
    from edgekit.host.lab.tune.products import MatrixProduct
    from edgekit.kb.targets.board import BoardProfile

_SPREAD = 150  # products besides those of networks, if neither shapes nor a model are given
_EMULATED_SPREAD = 60  # likewise under an emulator


@dataclass(frozen=True)
class ProductKind:
    """Values from the options for all products; None if not given. `unit`: of the measurer."""

    dtype: str | None
    threads: int
    packed: Literal["none", "a", "b"] | None
    unit: str


def select_products(
    model: Path | None, shapes: Path | None, kind: ProductKind
) -> tuple[MatrixProduct, ...]:
    """The products of a model or a file, else a set of usual ones. Raises InputError."""
    from edgekit.host.lab.tune.products import (
        COUNTED_OPERATIONS,
        MatrixProduct,
        products_of_model,
        shapes_of_file,
        usual_shapes,
    )
    from edgekit.host.lab.tune.shape_set import shape_set

    if model and shapes:
        raise InputError("expected --model or --shapes, found both; name one")
    for file in filter(None, (model, shapes)):
        check_regular(file)
    if model is None:
        dtype, packed = kind.dtype or "f32", kind.packed or "none"
        if shapes:
            found = shapes_of_file(shapes)
        elif kind.unit == "cycles":
            found = shape_set()
        elif kind.unit == "instructions":
            found = usual_shapes(_EMULATED_SPREAD, packed, COUNTED_OPERATIONS)
        else:
            found = usual_shapes(_SPREAD, packed)
        return tuple(MatrixProduct(shape, dtype, kind.threads, packed) for shape in found)
    of_model = [
        replace(p, packed=kind.packed or p.packed)
        for p in products_of_model(model, kind.threads)
        if kind.dtype in (None, p.dtype)
    ]
    if not of_model:
        raise InputError(
            f"{model}: expected products of {kind.dtype}, found none; leave out --dtype"
        )
    return tuple(of_model)


def methods_to_remeasure(
    model: Path | None, shapes: Path | None, profile: BoardProfile, kind: ProductKind
) -> dict[MatrixProduct, Method]:
    """The methods in the rows of the board's table, by product. Raises InputError if none."""
    from edgekit.host.compiler.tables.gemm import table_of
    from edgekit.host.lab.tune.tables import methods_of_rows

    if model or shapes:
        raise InputError("expected --remeasure or products of your own, found both; name one")
    table, platform = table_of(profile), profile.platform
    found = methods_of_rows(table, platform, kind.dtype, kind.threads, kind.packed)
    if not found:
        raise InputError(
            f"expected rows of {platform} with methods in the table, found none; "
            "leave out --remeasure"
        )
    return found
