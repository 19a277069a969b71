"""Artangram: action-level orchestration and disaggregated rollout for agentic RL.

async with artangram.local() as cluster:
    async with cluster.trajectory(job="demo", task="swe", memory_mb=512) as t:
        result = await t.run(["pytest", "-q"], cpu=artangram.between(1, 8), kind="swe/test")
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["ApiSpec", "Service", "between", "connect", "function", "local", "one_of"]

if TYPE_CHECKING:
    from artangram.apis.spec import ApiSpec
    from artangram.functions import function
    from artangram.orchestrator.client import between, one_of
    from artangram.orchestrator.connect import connect
    from artangram.orchestrator.local import local
    from artangram.services.service import Service

_HOMES = {
    "ApiSpec": "apis.spec",
    "Service": "services.service",
    "between": "orchestrator.client",
    "connect": "orchestrator.connect",
    "function": "functions",
    "local": "orchestrator.local",
    "one_of": "orchestrator.client",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, so that `import artangram` stays a matter of milliseconds."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'artangram' has no attribute {name!r}")
    return getattr(import_module(f"artangram.{_HOMES[name]}"), name)
