"""Deploys to a board and uses the deployed release, over any Transport."""

from edgekit.host.deploy.release.application import (
    Application,
    application_log,
    application_status,
    deployed_bundle,
    read_application,
    start_application,
    stop_application,
    with_application,
)
from edgekit.host.deploy.release.deploy import deploy
from edgekit.host.deploy.release.enroll import enroll, enroll_host, enroll_unsigned
from edgekit.host.deploy.release.inference import (
    Generated,
    InferenceSession,
    open_session,
    variants_of_signature,
)
from edgekit.host.deploy.release.noise import check_quiet, refuse_noise, why_noisy
from edgekit.host.deploy.release.preview import plan_deploy
from edgekit.host.deploy.release.probed import c_library_advice, folder_advice, probe
from edgekit.host.deploy.release.runtime import QUICK_SECONDS, BoardCalls, check_name
from edgekit.host.deploy.release.types import (
    ApplicationState,
    Benchmark,
    BoardStatus,
    ClockReadings,
    DeployPlan,
    DeployProgress,
    InstructionCount,
    ModelHotspots,
    OnStep,
    OperatorTime,
    PlannedFile,
    Release,
    ReleaseInfo,
    Timings,
)
from edgekit.host.deploy.release.use import (
    bench,
    count_instructions,
    remove,
    rollback,
    status,
    verify,
)

__all__ = [
    "QUICK_SECONDS",
    "Application",
    "ApplicationState",
    "Benchmark",
    "BoardCalls",
    "BoardStatus",
    "ClockReadings",
    "DeployPlan",
    "DeployProgress",
    "Generated",
    "InferenceSession",
    "InstructionCount",
    "ModelHotspots",
    "OnStep",
    "OperatorTime",
    "PlannedFile",
    "Release",
    "ReleaseInfo",
    "Timings",
    "application_log",
    "application_status",
    "bench",
    "c_library_advice",
    "check_name",
    "check_quiet",
    "count_instructions",
    "deploy",
    "deployed_bundle",
    "enroll",
    "enroll_host",
    "enroll_unsigned",
    "folder_advice",
    "open_session",
    "plan_deploy",
    "probe",
    "read_application",
    "refuse_noise",
    "remove",
    "rollback",
    "start_application",
    "status",
    "stop_application",
    "variants_of_signature",
    "verify",
    "why_noisy",
    "with_application",
]
