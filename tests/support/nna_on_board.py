"""Runs on a board: computes the products of a file and counts instructions of standard ones.

    python3 nna_on_board.py PACKAGE.zip LIBRARY CASES OUTPUT OUTPUT-BYTES

LIBRARY is built from nna_products.c. Prints one JSON document.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

package, path, cases, output, size = sys.argv[1:]
sys.path.insert(0, package)

from edgekit.device.runtime.agent.count import count_calls, counter, fix_layout  # noqa: E402
from edgekit.device.runtime.arrays.nna_chip import NNA2  # noqa: E402
from edgekit.device.runtime.arrays.nna_native import ConvShape, MatmulShape, NativeNna  # noqa: E402

MATMUL, CONV = MatmulShape(4, 72, 512), ConvShape(2, 10, 18, 2, 8, 16, 1)


def block(size: int) -> int:
    """The address of nonuniform bytes that live as long as this program."""
    memory = ctypes.create_string_buffer(bytes(7 * i % 251 for i in range(size)), size)
    blocks.append(memory)
    return ctypes.addressof(memory)


blocks: list = []
fix_layout()
library = ctypes.CDLL(str(Path(path).resolve()))
library.ek_missing_feature.restype = ctypes.c_char_p
assert library.ek_missing_feature() is None
given = Path(cases).read_bytes()
made = ctypes.create_string_buffer(int(size))
model = (ctypes.c_void_p * 5)()
library.ek_run(
    model,
    ctypes.byref(ctypes.c_char_p(given)),
    ctypes.byref(ctypes.c_void_p(ctypes.addressof(made))),
)
Path(output).write_bytes(made.raw)

native = NativeNna(library)
matmul = tuple(map(block, (4 * 72, 72 * 512, 1, 4 * 4 * 512)))
conv = tuple(map(block, (2 * 10 * 18 * 32, 4 * 9216, 4 * 2 * 8 * 16 * 32)))
one = MatmulShape(1, 1, 1)


def counted(call) -> int:
    nothing = lambda: native.matmul(NNA2, one, matmul, timed=False)  # noqa: E731
    return min(count_calls(descriptor, nothing, call, 3))


with counter() as (descriptor, user_only):
    found = {
        "nna_matmul_4x72x512": counted(lambda: native.matmul(NNA2, MATMUL, matmul, timed=False)),
        "nna_matmul_4x72x512_account": counted(
            lambda: native.matmul(NNA2, MATMUL, matmul, timed=True)
        ),
        "nna_conv_8x16x64x64": counted(lambda: native.conv(NNA2, CONV, conv, timed=False)),
    }
print(json.dumps({"user_only": user_only, "instructions": found}))
