"""The client for code that is not async: the same names and keywords, and every call blocks.

    with artangram.sync.local() as client:
        with client.trajectory(memory_mb=512) as t:
            print(t.run(["echo", "hello"]).stdout)

- Every client owns one thread with an event loop. Any number of threads may call it at once, also
  a thread that runs an event loop itself, as in a notebook.
- `close`, or the end of a `with` block, ends the cluster or the connection and the thread. A client
  that is still open when the main thread ends is closed then.
- Ctrl-C during a call cancels that call; the client stays usable.
- A forked process cannot use the client of its parent; it opens its own.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from artangram.sync.client import (
    SyncApi,
    SyncClient,
    SyncFunction,
    SyncTrajectory,
)
from artangram.sync.process import SyncProcess, SyncShell
from artangram.sync.thread import LoopThread

if TYPE_CHECKING:
    from artangram.apis.spec import ApiSpec
    from artangram.core.scheduling.cluster import JobLimits
    from artangram.orchestrator.callbackends import Cuda, Vllm
    from artangram.sandbox import SandboxProvider
    from artangram.services.service import Service

__all__ = [
    "SyncApi",
    "SyncClient",
    "SyncFunction",
    "SyncProcess",
    "SyncShell",
    "SyncTrajectory",
    "connect",
    "local",
]


def connect(url: str, *, token: str | None = None, beat_s: float = 5.0) -> SyncClient:
    """Connect to the service at `url`; see `artangram.connect`."""
    from artangram.orchestrator.connect import connect as opened

    return SyncClient(LoopThread(lambda: opened(url, token=token, beat_s=beat_s)))


def local(
    *,
    policy: str = "elastic",
    cores: int | None = None,
    memory_mb: int | None = None,
    state_dir: "PathLike[str] | str | None" = None,
    provider: "SandboxProvider | Sequence[SandboxProvider] | None" = None,
    max_queued: int = 100_000,
    shares: Mapping[str, float] | None = None,
    limits: "Mapping[str, JobLimits] | None" = None,
    workers: int | None = None,
    functions: Sequence[str] = (),
    takes_objects: bool = True,
    platform_calls: int = 64,
    devices: "int | Cuda | Vllm" = 0,
    device_memory_mb: int = 2048,
    services: "Sequence[Service]" = (),
    apis: "Mapping[str, ApiSpec] | None" = None,
    private_addresses: Sequence[str] = (),
) -> SyncClient:
    """Start a cluster on this machine; see `artangram.local`."""
    from artangram.orchestrator.local import local as opened

    return SyncClient(
        LoopThread(
            lambda: opened(
                policy=policy,
                cores=cores,
                memory_mb=memory_mb,
                state_dir=state_dir,
                provider=provider,
                max_queued=max_queued,
                shares=shares,
                limits=limits,
                workers=workers,
                functions=functions,
                takes_objects=takes_objects,
                platform_calls=platform_calls,
                devices=devices,
                device_memory_mb=device_memory_mb,
                services=services,
                apis=apis,
                private_addresses=private_addresses,
            )
        )
    )
