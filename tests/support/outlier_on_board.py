"""Runs on a board: computes the products of a file and counts instructions of standard ones.

    python3 outlier_on_board.py PACKAGE.zip LIBRARY CASES OUTPUT OUTPUT-BYTES

LIBRARY is built from outlier_products.c. Prints one JSON document.
"""

from __future__ import annotations

import array
import ctypes
import json
import sys
from pathlib import Path

package, path, cases, output, size = sys.argv[1:]
sys.path.insert(0, package)

from edgekit.device.runtime.agent.count import count_calls, counter, fix_layout  # noqa: E402
from edgekit.device.runtime.arrays.outlier_library import DenseRows, Options, OutlierLibrary, Packed  # noqa: E402

M, K, N, OUTLIERS, GROUP = 16, 384, 128, 4, 128

fix_layout()
library = OutlierLibrary(Path(path).resolve())
bare = ctypes.CDLL(str(Path(path).resolve()))
given = Path(cases).read_bytes()
made = ctypes.create_string_buffer(int(size))
model = (ctypes.c_void_p * 5)()
bare.ek_run(
    model,
    ctypes.byref(ctypes.c_char_p(given)),
    ctypes.byref(ctypes.c_void_p(ctypes.addressof(made))),
)
Path(output).write_bytes(made.raw)

x = array.array("f", (((i * 37) % 101 - 50) / 20 for i in range(M * K)))
for channel in range(OUTLIERS):
    x[3 * K + 90 * channel] = 30.0
values = array.array("b", (i * 11 % 255 - 127 for i in range(K * N)))
fours = array.array("b", (value >> 4 for value in values))
scale = array.array("f", [0.01] * N * (K // GROUP))
y = array.array("f", [0.0] * (M * N))


def address(values: array.array) -> int:
    return values.buffer_info()[0]


packed = library.pack(N, K, K, address(values), address(scale))
in_fours = library.pack(N, K, GROUP, address(fours), address(scale), True)
one = library.pack(1, 1, 1, address(values), address(scale))


def counted(path: str, weights: Packed = packed) -> int:
    options = Options(6.0, path)
    return min(
        count_calls(
            descriptor,
            lambda: library.run(DenseRows(address(x), 1, 1, False), one, address(y), options, 1),
            lambda: library.run(
                DenseRows(address(x), M, K, False), weights, address(y), options, 1
            ),
            3,
        )
    )


with counter() as (descriptor, user_only):
    found = {f"{path}_{M}x{K}x{N}": counted(path) for path in ("split", "int8", "float")}
    found[f"split_int4_{M}x{K}x{N}"] = counted("split", in_fours)
print(json.dumps({"user_only": user_only, "instructions": found}))
