"""Answers the host's questions that precede a transfer."""

from __future__ import annotations

import argparse
from typing import Optional

from edgekit.device.runtime.agent.manifest import parse_manifest
from edgekit.device.runtime.agent.probe import probe
from edgekit.device.runtime.agent.release import plan, preview
from edgekit.device.runtime.agent.session import DeploySession
from edgekit.device.runtime.agent.signing import trust
from edgekit.device.runtime.agent.status import application_in_service
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.errors import Document
from edgekit.device.runtime.record import asdict


def plan_answer(
    store: Store, session: Optional[DeploySession], options: argparse.Namespace
) -> Document:
    """Answers all of them at once, because starting Python is slow.

    With `unless_application`, if the deployed release has an application, no plan is made and no
    session kept: the host asks again with a release that includes it.
    """
    if session:
        session.enter(options.take_over)
    try:
        application = application_in_service(store)
        waits = bool(application and options.unless_application)
        sent = (options.release, options.allow_downgrade, options.sent)
        found = None if waits else plan(store, *sent)
    except BaseException:
        if session:
            session.end()
        raise
    if session:
        over = waits or (found and found.unchanged)
        session.end() if over else session.keep(options.release)
    return {
        "schema": "edgekit.plan/1",
        "probe": asdict(probe(options.root)),
        "trust": asdict(trust(store)),
        "application": application,
        "plan": found and asdict(found),
    }


def preview_answer(store: Store, manifest: bytes, options: argparse.Namespace) -> Document:
    """Answers for a manifest on standard input. Changes nothing on the board: anomalies are
    repaired only by the next deploy."""
    current = store.links().current
    application = application_in_service(store)
    found = None
    if not (application and options.unless_application):
        found = preview(store, parse_manifest(manifest), options.allow_downgrade)
    return {
        "schema": "edgekit.preview/1",
        "probe": asdict(probe(options.root)),
        "application": application,
        "current": current,
        "plan": found and asdict(found),
    }
