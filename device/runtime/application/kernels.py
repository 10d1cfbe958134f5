"""Products for programs on a board. They use the kernels of the release that this runtime belongs
to, so programs have the library that their Python code was made for."""

from __future__ import annotations

import atexit
import functools
import os
from pathlib import Path
from typing import Optional

from edgekit.device.runtime.agent.call_sampler import ProductSampler, call_sampler_for
from edgekit.device.runtime.agent.integrity import open_intact
from edgekit.device.runtime.agent.kernels import KERNELS, kernel_files
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.arrays.find import KernelFiles, use_release
from edgekit.device.runtime.arrays.gemm import gemm
from edgekit.device.runtime.arrays.nna_matmul import nna_matmul
from edgekit.device.runtime.arrays.outlier import OutlierWeights, outlier_matmul
from edgekit.device.runtime.arrays.sampling import use_sampler
from edgekit.device.runtime.arrays.sparse import SparseMatrix
from edgekit.device.runtime.bytecode import own_archive
from edgekit.device.runtime.errors import DeviceError

__all__ = ["OutlierWeights", "SparseMatrix", "gemm", "nna_matmul", "outlier_matmul"]

_MOST_SAMPLERS = 64


@functools.lru_cache(maxsize=1)
def _intact_files() -> KernelFiles:
    """The kernels of this release; TransferError if a file of it is damaged."""
    folder = _release_folder()
    open_intact(folder).close()
    return kernel_files(folder)


def _release_folder() -> Path:
    folder = own_archive().parent
    # The supervisor starts applications with a copy of the runtime, in a folder of the same name.
    installed = Path(os.environ.get("EDGEKIT_ROOT", ""), "releases", folder.name)
    return installed if (installed / KERNELS).exists() else folder


def _sampler(threads: int) -> Optional[ProductSampler]:
    return _sampler_of(os.getpid(), threads)


@functools.lru_cache(maxsize=_MOST_SAMPLERS)
def _sampler_of(process: int, threads: int) -> Optional[ProductSampler]:
    """Made once per process and number of threads; None if sampling is off or impossible."""
    del process
    folder = _release_folder()
    try:
        store = Store(folder.parent.parent)
        sampler = call_sampler_for(store, store.manifest(folder.name), threads)
    except (OSError, DeviceError):
        return None
    if sampler is not None:
        atexit.register(sampler.close)
    return sampler


use_release(_intact_files)
use_sampler(_sampler)
