"""Runs one network with ncnn, like its benchncnn, between simulation marks.

    python3 ncnn_network.py NETWORK.param SIZE THREADS

Runs in a system root under qemu-user, with ncnn's wheel on PYTHONPATH. Weights are zeros, as in
benchncnn, which only has the network definitions.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any

_BEGIN, _END, _WARM, _WARMED = 777001, 777002, 777004, 777005
_ON = (
    "use_winograd_convolution",
    "use_sgemm_convolution",
    "use_int8_inference",
    "use_fp16_packed",
    "use_fp16_storage",
    "use_fp16_arithmetic",
    "use_int8_storage",
    "use_int8_arithmetic",
    "use_packing_layout",
)


def _mark(number: int) -> None:
    with contextlib.suppress(OSError):  # no such descriptor exists: the call itself is the mark
        os.close(number)


def main(path: str, size: int, threads: int) -> None:
    ncnn: Any = importlib.import_module("ncnn")
    ncnn.set_omp_dynamic(0)
    ncnn.set_omp_num_threads(threads)
    blobs, workspace = ncnn.UnlockedPoolAllocator(), ncnn.PoolAllocator()
    blobs.set_size_compare_ratio(0.0)
    workspace.set_size_compare_ratio(0.0)
    net = ncnn.Net()
    options = net.opt
    options.lightmode = True
    options.num_threads = threads
    options.blob_allocator, options.workspace_allocator = blobs, workspace
    options.use_vulkan_compute = False
    for name in _ON:
        setattr(options, name, True)
    net.opt = options
    if net.load_param(path):
        sys.exit(f"{path}: ncnn cannot load it")
    net.load_model(ncnn.DataReaderFromEmpty())
    image = ncnn.Mat(size, size, 3)
    image.fill(0.01)
    inputs, outputs = list(net.input_names()), list(net.output_names())
    for begin, end in ((_WARM, _WARMED), (_BEGIN, _END)):
        _mark(begin)
        extractor = net.create_extractor()
        for name in inputs:
            extractor.input(name, image)
        for name in outputs:
            extractor.extract(name)
        _mark(end)
    sys.stdout.flush()
    os._exit(0)  # otherwise the allocators would be destroyed before the network


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
