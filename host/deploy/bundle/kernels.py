"""Builds the bundle of a board's kernels: a library of products, its tables, and the interfaces for
programs in Python and in C."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edgekit.device.runtime.agent.kernels import (
    C_FOLDER,
    GEMM_TABLE,
    KERNELS,
    KERNELS_OF,
    NNA_CHIP,
    SPMV_TABLE,
    KernelsSpec,
    ReferenceProduct,
)
from edgekit.device.runtime.agent.manifest import RUNTIME, Manifest, ModelRef, parse_manifest
from edgekit.device.runtime.agent.specs import BoardMemory, GoldenFiles, TensorSpec
from edgekit.device.runtime.arrays.nna_chip import NNA2
from edgekit.device.runtime.dtypes import BY_NPY
from edgekit.device.version import VERSION
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.toolchain.application import application_files
from edgekit.host.compiler.toolchain.kernels import build_kernels, build_tables
from edgekit.host.deploy.bundle.build import board_needs, file_entries, golden_files
from edgekit.host.deploy.bundle.bundle import Bundle
from edgekit.host.deploy.bundle.pyz import runtime_pyz
from edgekit.host.deploy.bundle.references import Reference, reference_products
from edgekit.kb.targets.board import BoardProfile


def build_kernels_bundle(
    board: BoardProfile, counter: int = 0, cache: Path | None = None
) -> Bundle:
    """Builds the bundle of the kernels for `board`; deterministic in its arguments. Objects are
    kept in `cache`, by default the user's.

    Raises BuildError if the C compiler fails, InputError if a table cannot be read.
    """
    library = build_kernels(board, cache, c_api=True)
    products, tables = build_tables(board)
    files = {
        RUNTIME: runtime_pyz(kernels=True),
        KERNELS: library,
        GEMM_TABLE: products,
        SPMV_TABLE: tables,
        NNA_CHIP: (board.nna.chip if board.nna else NNA2).text.encode(),
        **{f"{C_FOLDER}/{name}": data for name, data in application_files(board, cache).items()},
    }
    # The release runs on boards that lack a feature of `extras`.
    of_half = board.computes_half and board.isa.half_feature in board.features
    references = tuple(_add_product(each, files) for each in reference_products(of_half))
    manifest = Manifest(
        id="",
        kit_version=VERSION,
        counter=counter,
        model=ModelRef(f"{KERNELS_OF}{board.platform}", hashlib.sha256(library).hexdigest()),
        board=board_needs(board, board.features),
        memory=BoardMemory(0, 0, len(library)),
        inputs=(),
        outputs=(),
        operators=(),
        simd=board.simd,
        golden=GoldenFiles((), (), ()),
        files=file_entries(files),
        kernels=KernelsSpec(board.platform, references),
    ).with_id()
    return Bundle(parse_manifest(manifest.to_json()), files)


def _add_product(reference: Reference, files: dict[str, bytes]) -> ReferenceProduct:
    """Builds the manifest entry of a product; adds its arrays to `files`."""
    inputs = golden_files(f"{reference.kind}/in", tuple(reference.operands.values()))
    outputs = golden_files(f"{reference.kind}/out", (reference.result,))
    files.update({**inputs, **outputs})
    return ReferenceProduct(
        reference.kind,
        tuple(_tensor_of(name, array) for name, array in reference.operands.items()),
        (_tensor_of("result", reference.result),),
        GoldenFiles(tuple(inputs), tuple(outputs), (reference.tolerance,)),
    )


def _tensor_of(name: str, array: Array) -> TensorSpec:
    return TensorSpec(name, BY_NPY[array.dtype.str].name, array.shape, None, None)
