"""Replaces the tables of a deployed release of kernels, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from edgekit.device.runtime.agent.kernels import GEMM_TABLE, SPMV_TABLE
from edgekit.device.runtime.agent.manifest import parse_manifest
from edgekit.device.version import VERSION
from edgekit.host.compiler.toolchain.kernels import build_tables
from edgekit.host.deploy.bundle import Bundle, sign_bundle
from edgekit.host.deploy.bundle.build import file_entries
from edgekit.host.deploy.release.application import LayeredFiles, deployed_bundle
from edgekit.host.deploy.release.runtime import BoardCalls
from edgekit.host.errors import IncompatibleError, InputError
from edgekit.kb.targets.board import BoardProfile

_AGAIN = "deploy the kernels again: edgekit deploy --kernels"


def bundle_with_tables(board: BoardCalls, profile: BoardProfile) -> Bundle:
    """The release of kernels that the board runs, with this host's tables for `profile`, signed.

    Its other files stay on the board. InputError if it runs no kernels or another host's,
    IncompatibleError if they are for another core or were built by another edgekit.
    """
    current = board.call("status", "--quick")["current"]
    if current is None:
        raise InputError(f"board '{board.name}': expected kernels, found no release; {_AGAIN}")
    running = deployed_bundle(board, _AGAIN, current["id"])
    manifest = running.manifest
    if manifest.kernels is None:
        raise InputError(
            f"board '{board.name}': expected kernels, found the model {manifest.model.name}; "
            "name a release of kernels: --name"
        )
    if manifest.kernels.platform != profile.platform:
        raise IncompatibleError(
            f"board '{board.name}': expected kernels for {profile.platform}, found some for "
            f"{manifest.kernels.platform}; {_AGAIN}"
        )
    if manifest.kit_version != VERSION:
        raise IncompatibleError(
            f"board '{board.name}': expected kernels of edgekit {VERSION}, found some of "
            f"{manifest.kit_version}; {_AGAIN}"
        )
    products, sparse = build_tables(profile)
    tables = {GEMM_TABLE: products, SPMV_TABLE: sparse}
    kept = (entry for entry in manifest.files if entry.path not in tables)
    entries = sorted((*kept, *file_entries(tables)), key=lambda entry: entry.path)
    made = parse_manifest(replace(manifest, files=tuple(entries)).with_id().to_json())
    return sign_bundle(Bundle(made, LayeredFiles(tables, running.files)))
