"""Artangram: action-level orchestration and disaggregated rollout for agentic RL.

async with artangram.local() as client:
    async with client.trajectory(job="demo", task="swe", memory_mb=512) as t:
        result = await t.run(["pytest", "-q"], cpu=artangram.between(1, 8), kind="swe/test")

`artangram.sync` is the same for code that is not async. Names that are listed in `__all__` are the
public interface; everything else may change.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "ActionRecord",
    "ActionResult",
    "Amount",
    "Api",
    "ApiAnswer",
    "ApiSpec",
    "BadInput",
    "Broken",
    "CallFailed",
    "CallOptions",
    "Client",
    "ClusterStatus",
    "CommandResult",
    "DirectoryImage",
    "Draining",
    "EngineImage",
    "Explanation",
    "FileStat",
    "HostImage",
    "InfraFailed",
    "JobLimits",
    "Limits",
    "Outcome",
    "Output",
    "Overloaded",
    "ProcessHandle",
    "Refused",
    "RemoteFunction",
    "RunOptions",
    "SandboxError",
    "SandboxGone",
    "Service",
    "ServiceOptions",
    "ShellEnded",
    "ShellHandle",
    "ShellResult",
    "Snapshot",
    "SnapshotInfo",
    "StartOptions",
    "TarImage",
    "TrajectoryHandle",
    "TrajectoryOptions",
    "Unreachable",
    "between",
    "connect",
    "function",
    "local",
    "one_of",
    "sync",
]

if TYPE_CHECKING:
    from artangram import sync
    from artangram.apis.spec import ApiSpec
    from artangram.core.errors import BadInput, CallFailed, InfraFailed
    from artangram.core.scheduling.action import ActionRecord, Outcome
    from artangram.core.scheduling.cluster import JobLimits
    from artangram.core.scheduling.explain import Explanation
    from artangram.functions import function
    from artangram.orchestrator.calling import Api, ApiAnswer, RemoteFunction
    from artangram.orchestrator.client import Client, TrajectoryHandle
    from artangram.orchestrator.connect import connect
    from artangram.orchestrator.files import FileStat
    from artangram.orchestrator.local import local
    from artangram.orchestrator.options import (
        Amount,
        CallOptions,
        RunOptions,
        ServiceOptions,
        StartOptions,
        TrajectoryOptions,
        between,
        one_of,
    )
    from artangram.orchestrator.process import ProcessHandle
    from artangram.orchestrator.records import (
        ActionResult,
        Broken,
        ClusterStatus,
        Draining,
        Overloaded,
        Refused,
        Unreachable,
    )
    from artangram.orchestrator.shell import ShellEnded, ShellHandle, ShellResult
    from artangram.sandbox.errors import SandboxError, SandboxGone
    from artangram.sandbox.protocol import (
        CommandResult,
        DirectoryImage,
        EngineImage,
        HostImage,
        Limits,
        Output,
        Snapshot,
        TarImage,
    )
    from artangram.sandbox.snapshot import SnapshotInfo
    from artangram.services.service import Service

_MODULES = {
    "apis.spec": "ApiSpec",
    "core.errors": "BadInput CallFailed InfraFailed",
    "core.scheduling.cluster": "JobLimits",
    "core.scheduling.explain": "Explanation",
    "core.scheduling.action": "ActionRecord Outcome",
    "functions": "function",
    "orchestrator.calling": "Api ApiAnswer RemoteFunction",
    "orchestrator.client": "Client TrajectoryHandle",
    "orchestrator.connect": "connect",
    "orchestrator.files": "FileStat",
    "orchestrator.local": "local",
    "orchestrator.options": "Amount CallOptions RunOptions ServiceOptions StartOptions "
    "TrajectoryOptions between one_of",
    "orchestrator.process": "ProcessHandle",
    "orchestrator.records": "ActionResult Broken ClusterStatus Draining Overloaded Refused "
    "Unreachable",
    "orchestrator.shell": "ShellEnded ShellHandle ShellResult",
    "sandbox.errors": "SandboxError SandboxGone",
    "sandbox.protocol": "CommandResult DirectoryImage EngineImage HostImage Limits Output "
    "Snapshot TarImage",
    "sandbox.snapshot": "SnapshotInfo",
    "services.service": "Service",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


if not TYPE_CHECKING:  # A type checker would believe that every name exists.

    def __getattr__(name: str) -> Any:
        """Import what is asked for, so that `import artangram` takes milliseconds."""
        from importlib import import_module

        if name == "sync":
            return import_module("artangram.sync")
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'artangram' has no attribute {name!r}")
        return getattr(import_module(f"artangram.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    """For completion in shells and notebooks."""
    return [*__all__, "__version__"]
