"""A release of kernels: a library and its tables instead of a model, and the products that its
health check computes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Tuple

from edgekit.device.runtime.agent.specs import GoldenFiles, TensorSpec, golden_of, tensor_of
from edgekit.device.runtime.agent.strict import bad, each, keys_of, text
from edgekit.device.runtime.record import Record

if TYPE_CHECKING:
    from edgekit.device.runtime.arrays.find import KernelFiles

KERNELS = "kernels.so"
GEMM_TABLE = f"{KERNELS}.table"
SPMV_TABLE = f"{KERNELS}.spmv"
KERNELS_OF = "kernels of "  # begins the release's name, before the core
NNA_CHIP = f"{KERNELS}.nna"
# For C programs: in this folder of the release, and written by `edgekit app library`.
C_FOLDER = "include"
C_LIBRARY = "libedgekit-app.so"
C_FILES = (
    *("ek_app.h", "ek_kernels.h", "ek_gemm.h", "ek_spmv.h", "ek_outlier.h"),
    *(C_LIBRARY, "edgekit-kernels.pc", "edgekit-kernels-config.cmake"),
)
KINDS = ("gemm_f32", "gemm_f16", "gemm_s8", "gemm_u8", "nna", "spmv", "outlier")


class ReferenceProduct(Record):
    """One product with its operands and its result, as tensors and files."""

    kind: str
    inputs: Tuple[TensorSpec, ...]
    outputs: Tuple[TensorSpec, ...]
    golden: GoldenFiles


class KernelsSpec(Record):
    """`platform`: the core that the tables are of."""

    platform: str
    products: Tuple[ReferenceProduct, ...]

    @property
    def paths(self) -> Tuple[str, ...]:
        """All files that only a release of kernels has."""
        golden = (path for product in self.products for path in product.golden.paths)
        programs = (f"{C_FOLDER}/{name}" for name in C_FILES)
        return (KERNELS, GEMM_TABLE, SPMV_TABLE, NNA_CHIP, *programs, *golden)


def kernel_files(folder: Path) -> KernelFiles:
    """Returns the paths of the library, the tables and the chip of a release."""
    from edgekit.device.runtime.arrays.find import KernelFiles  # most commands load no library

    others = (folder / name for name in (GEMM_TABLE, SPMV_TABLE, NNA_CHIP))
    return KernelFiles(folder / KERNELS, *others)


def kernels_of(raw: object, where: str) -> KernelsSpec:
    """Parses the manifest's `kernels`; InputError names the invalid part."""
    keys = keys_of(raw, where, KernelsSpec.field_names)
    platform = text(keys["platform"], f"{where}.platform")
    return KernelsSpec(platform, each(keys["products"], f"{where}.products", _product_of))


def _product_of(raw: object, where: str) -> ReferenceProduct:
    keys = keys_of(raw, where, ReferenceProduct.field_names)
    if keys["kind"] not in KINDS:
        raise bad(f"{where}.kind", "one of " + ", ".join(KINDS), keys["kind"])
    return ReferenceProduct(
        str(keys["kind"]),
        each(keys["inputs"], f"{where}.inputs", tensor_of),
        each(keys["outputs"], f"{where}.outputs", tensor_of),
        golden_of(keys["golden"], f"{where}.golden"),
    )
