"""Deploying to a board and using what was deployed, over any Transport."""

from edgekit.host.release.count import InstructionCount, count_instructions
from edgekit.host.release.deploy import deploy, plan_deploy
from edgekit.host.release.enroll import enroll, enroll_host, enroll_unsigned
from edgekit.host.release.inference import Session, open_session
from edgekit.host.release.noise import check_quiet, refuse_noise, why_noisy
from edgekit.host.release.runtime import QUICK_SECONDS, check_name
from edgekit.host.release.types import (
    Benchmark,
    BoardStatus,
    Conditions,
    DeployPlan,
    OnStep,
    OperatorTime,
    PlannedFile,
    Release,
    ReleaseInfo,
    Step,
    Timings,
)
from edgekit.host.release.use import bench, probe, remove, rollback, run, status, verify

__all__ = [
    "QUICK_SECONDS",
    "Benchmark",
    "BoardStatus",
    "Conditions",
    "DeployPlan",
    "InstructionCount",
    "OnStep",
    "OperatorTime",
    "PlannedFile",
    "Release",
    "ReleaseInfo",
    "Session",
    "Step",
    "Timings",
    "bench",
    "check_name",
    "check_quiet",
    "count_instructions",
    "deploy",
    "enroll",
    "enroll_host",
    "enroll_unsigned",
    "open_session",
    "plan_deploy",
    "probe",
    "refuse_noise",
    "remove",
    "rollback",
    "run",
    "status",
    "verify",
    "why_noisy",
]
