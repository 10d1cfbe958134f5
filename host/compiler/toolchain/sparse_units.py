"""The C files of sparse matrices in the kernels library."""

from __future__ import annotations

from edgekit.device.runtime.arrays.sparse_library import STORED
from edgekit.host.compiler.toolchain.zig import Unit, kernels_folder
from edgekit.kb.targets.board import BoardProfile


def sparse_units(board: BoardProfile) -> list[Unit]:
    """Building and multiplying sparse matrices, for one board."""
    folder = kernels_folder() / "sparse"
    simd = ("EK_SIMD", f'"simd/{board.simd}.h"')
    plain = ("rows", "build", "fill", "pieces", "stream")
    units = [Unit(f"sparse_{name}", folder / f"{name}.c") for name in plain]
    in_order = (("EK_IN_ORDER", "1"),) if board.in_order else ()
    units.append(Unit("sparse_dispatch", folder / "dispatch.c", (simd,)))
    for number, name in enumerate(STORED):
        for product in ("spmv", "spmm"):
            symbol = f"ek_{product}_{name}"
            macros = (("EK_STORED", str(number)), ("EK_NAME", symbol), simd, *in_order)
            if symbol != "ek_spmv_s8f":  # a vector of floats and bytes: SpMM's alone
                units.append(Unit(symbol, folder / f"{product}.c", macros))
    return units
