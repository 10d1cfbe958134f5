"""`edgekit deploy --kernels`: puts a board's library of products into service."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.bundle import Bundle
    from edgekit.host.deploy.release import Release

KERNELS_NAME = "kernels"  # of the release, without --name


def kernels_bundle(device: Board, counter: int, dry_run: bool) -> Bundle:
    """The bundle for the board's profile; for a dry run unsigned, and without leaving any files."""
    from edgekit.host.cli.progress import working
    from edgekit.host.common.checked_files import scratch_of
    from edgekit.host.common.paths import cache_folder
    from edgekit.host.deploy.bundle import sign_bundle
    from edgekit.host.deploy.bundle.kernels import build_kernels_bundle
    from edgekit.kb.targets.board import load_board

    profile = load_board(device.profile)
    with working(f"compiling the kernels of {profile.platform}"):
        if not dry_run:
            return sign_bundle(build_kernels_bundle(profile, counter))
        with scratch_of(cache_folder()) as cache:
            return build_kernels_bundle(profile, counter, cache)


def show_kernels(device: Board, bundle: Bundle, release: Release, as_json: bool) -> None:
    """Prints the release, its health check, its size, and how a program uses it."""
    from edgekit.device.runtime.agent.kernels import C_FOLDER
    from edgekit.device.runtime.agent.manifest import RUNTIME
    from edgekit.host.cli.output import byte_size, emit
    from edgekit.host.cli.plan import show_application
    from edgekit.host.deploy.release import probe

    current = f"{probe(device).folder}/current"
    runtime, include = f"{current}/{RUNTIME}", f"{current}/{C_FOLDER}"
    size, kernels = sum(entry.bytes for entry in bundle.manifest.files), bundle.manifest.kernels
    checked = [product.kind for product in kernels.products] if kernels else []
    if as_json:
        emit(
            {
                "schema": "edgekit.deploy.kernels/1",
                "board": device.name,
                "name": device.model_name,
                "kernels": release.model,
                "release": release.id,
                "changed": release.changed,
                "previous": release.previous,
                "bytes": size,
                "sent_bytes": release.sent_bytes,
                "state_ms": dict(release.state_ms),
                "health": dict(release.health),
                "products": checked,
                "runtime": runtime,
                "include": include,
            }
        )
        return
    what = f"{byte_size(release.sent_bytes)} sent" if release.changed else "already in service"
    print(f"release  {release.id}, {release.model}, on {device.name}, {what}")
    print(f"size     {byte_size(size)} on the board")
    print(f"health   ok, {len(checked)} products matched their references: {', '.join(checked)}")
    show_application(release)
    print(f"import   edgekit_runtime from {runtime}")
    print(f"include  ek_gemm.h from {include}")
