"""Products for programs on a board. They use the kernels of the release that this runtime belongs
to, so programs have the library that their Python code was made for."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from edgekit.device.runtime.agent.integrity import open_intact
from edgekit.device.runtime.agent.kernels import KERNELS, kernel_files
from edgekit.device.runtime.arrays.find import KernelFiles, use_release
from edgekit.device.runtime.arrays.gemm import gemm
from edgekit.device.runtime.arrays.nna_matmul import nna_matmul
from edgekit.device.runtime.arrays.outlier import OutlierWeights, outlier_matmul
from edgekit.device.runtime.arrays.sparse import SparseMatrix
from edgekit.device.runtime.bytecode import own_archive

__all__ = ["OutlierWeights", "SparseMatrix", "gemm", "nna_matmul", "outlier_matmul"]


@functools.lru_cache(maxsize=1)
def _intact_files() -> KernelFiles:
    """The kernels of this release; TransferError if a file of it is damaged."""
    folder = own_archive().parent
    # The supervisor starts applications with a copy of the runtime, in a folder of the same name.
    installed = Path(os.environ.get("EDGEKIT_ROOT", ""), "releases", folder.name)
    if (installed / KERNELS).exists():
        folder = installed
    open_intact(folder).close()
    return kernel_files(folder)


use_release(_intact_files)
