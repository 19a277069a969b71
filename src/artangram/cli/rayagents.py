"""`artangram up --ray`: agents on the nodes of a Ray cluster, for as long as the head serves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from artangram.backends.agentlock import cluster_of
from artangram.backends.ray.records import Attached, HeadServes, WatchSettings
from artangram.backends.ray.watcher import RayWatcher
from artangram.core.errors import BadInput
from artangram.orchestrator.joinednodes import AgentAddress
from artangram.orchestrator.tokens import kept_token

AGENTS_PORT = 7411


class RayAgents:
    """Where the head is in Ray, and how its agents hear of it."""

    def __init__(self, watcher: RayWatcher, attached: Attached, join_token: str) -> None:
        self._watcher = watcher
        self._join_token = join_token
        self._endpoint: AgentAddress | None = None
        self.address = attached.address
        """Of this machine; `None` if Ray does not run here."""
        self.cores = max(1, attached.cpus)
        """That the head may use of this machine: a claim keeps Ray's tasks off them."""

    def host(self, given: str | None, option: str) -> str:
        """The address to listen on. Raises `BadInput` if only the user can tell it."""
        host = given or self.address
        if host is None:
            problem = "is needed, because this machine does not belong to the Ray cluster"
            raise BadInput(option, problem, "give an address that Ray's nodes can reach")
        return host

    def on_open(self, endpoint: AgentAddress) -> None:
        """Agents may join from now on."""
        self._endpoint = endpoint

    def on_ready(self, url: str, token: str) -> None:
        """Callers may call from now on."""
        assert self._endpoint is not None
        serve = HeadServes(
            url=url,
            token=token,
            host=self._endpoint.host,
            port=self._endpoint.port,
            fingerprint=self._endpoint.fingerprint,
            join_token=self._join_token,
        )
        self._watcher.serve(serve)


@contextmanager
def ray_agents(
    settings: WatchSettings, *, state_dir: Path, join_token: str, say: Callable[[str], None]
) -> Iterator[RayAgents]:
    """Reach Ray; what runs there for this head ends with the block."""
    with RayWatcher(settings, log=state_dir / "ray.log", say=say) as watcher:
        yield RayAgents(watcher, watcher.attach(), join_token)


def watch_settings(
    address: str | None,
    *,
    cpus: int | None,
    with_gpu_nodes: bool,
    with_gpus: bool,
    placement_group: str | None,
    state_dir: Path,
) -> WatchSettings | None:
    """What the options ask for; `None` without --ray. Raises `BadInput`."""
    if address is None:
        if cpus is not None or with_gpu_nodes or with_gpus or placement_group is not None:
            raise BadInput("--ray", "is missing, and another option needs it", "add --ray auto")
        return None
    return WatchSettings(
        address=address,
        cluster=cluster_of(kept_token(state_dir, "join-token")),
        cpus=cpus,
        with_gpu_nodes=with_gpu_nodes,
        with_gpus=with_gpus,
        placement_group=placement_group,
    )
