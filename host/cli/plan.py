"""Shows a deployment plan: the same object that the deployment acts on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edgekit.host.cli.output import byte_size, table

if TYPE_CHECKING:
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.release import DeployPlan, Release


def plan_document(device: Board, plan: DeployPlan) -> dict[str, Any]:
    """The document edgekit.deploy.plan/1."""
    return {
        "schema": "edgekit.deploy.plan/1",
        "board": device.name,
        **asdict(plan),
        "send": list(plan.send),
        "send_bytes": plan.send_bytes,
        "there_bytes": plan.there_bytes,
    }


def show_plan(device: Board, plan: DeployPlan) -> None:
    """Prints states, files and space; omitted steps are labeled skipped."""
    from edgekit.device.runtime.agent import states

    if plan.unchanged:
        print(f"release  {plan.release} runs on {device.name} already; nothing to do")
    else:
        instead = f" in place of {plan.replaces}" if plan.replaces else ""
        print(f"release  {plan.release} would run on {device.name}{instead}")
    free = byte_size(plan.disk_free_bytes)
    print(f"send     {byte_size(plan.send_bytes)}; {byte_size(plan.there_bytes)} already there")
    print(f"disk     {byte_size(plan.disk_needed_bytes)} needed, {free} free")
    available = plan.memory_available_bytes
    memory = "unknown how much is" if available is None else byte_size(available)
    print(f"memory   {byte_size(plan.memory_needed_bytes)} needed, {memory} available")
    rows = [
        (s.name, s.where, s.does, "do" if s.name in plan.states else "skip") for s in states.STATES
    ]
    show_application(plan)
    table(("state", "where", "what", "action"), rows, left=4)
    files = [(f.path, "send" if f.sent else "skip", byte_size(f.bytes)) for f in plan.files]
    table(("file", "action", "size"), files, left=2)


def show_application(release: Release | DeployPlan) -> None:
    """Prints what happens to an installed application, if there is one."""
    if release.application:
        print(f"app      {release.application} stays, with this release")
    elif release.left_application:
        print(f"app      {release.left_application} stops: this release has none")
