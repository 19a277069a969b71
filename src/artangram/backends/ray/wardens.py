"""The wardens of one cluster: started where a claim is planned, asked, replaced, ended.

- A warden is a detached actor, pinned to its node and named for the cluster and the node, so the
  next watch process finds it.
- Ray tells late that a node is dead. A warden that died on a live node is replaced. An agent that
  still runs is adopted, so neither costs an action.
"""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from artangram.backends.ray.planning import NodeClaim, RayNode
from artangram.backends.ray.records import NAMESPACE, AgentOrder, AgentState, HeadServes
from artangram.backends.ray.warden import ABANDONED_S, Warden, end_agent

ASK_EVERY_S = 2.0
WAITING_S = 10.0
"""After so long without its CPUs, a claim is reported as waiting."""
AGAIN_S = 5.0
"""Before a warden that could not start is tried again."""
CLOSE_S = 30.0
"""How long all agents together may take to end; they end at the same time."""


@dataclass(slots=True)
class _HeldWarden:
    """One warden, and what is known of its agent."""

    claim: NodeClaim
    actor: Any
    answer: Any
    """Under way, or `None`."""
    asked_at: float
    state: AgentState | None = None

    @property
    def name(self) -> str:
        return self.claim.node.name


class Wardens:
    """See the module."""

    def __init__(self, cluster: str, say: Callable[[str], None]) -> None:
        self.group: Any = None
        """The placement group whose bundles are claimed, if any."""
        self._cluster = cluster
        self._say = say
        self._serve: HeadServes | None = None
        self._held: dict[str, _HeldWarden] = {}
        self._left: set[str] = set()
        """Ray's ids of nodes whose agents were drained: they stay out until the next head."""
        self._retry_at: dict[str, float] = {}
        self._told: dict[str, str] = {}
        """What was said last of each node, by its name."""

    def held(self) -> Collection[str]:
        """Ray's ids of the nodes that have a warden."""
        return self._held.keys()

    def use(self, serve: HeadServes) -> None:
        """From now on, agents join there."""
        self._serve = serve
        for name in ray.util.list_named_actors():
            if name.startswith("warden-") and not name.startswith(self._prefix):
                self._end_stranger(name)

    def keep(self, claims: Sequence[NodeClaim], *, alive: Collection[str]) -> None:
        """Hold these claims and no others."""
        wanted = {claim.node.id: claim for claim in claims if claim.node.id not in self._left}
        for node_id in self._held.keys() - wanted.keys():
            self._drop(self._held.pop(node_id), is_alive=node_id in alive)
        now = time.monotonic()
        for node_id in wanted.keys() - self._held.keys():
            if self._retry_at.get(node_id, 0.0) <= now:
                self._held[node_id] = self._started(wanted[node_id])
        for held in list(self._held.values()):
            self._look_at(held, now)

    def close(self, nodes: Sequence[RayNode]) -> None:
        """End every agent, then every warden."""
        answering = {i: held for i, held in self._held.items() if held.state is not None}
        ends = [held.actor.end.remote() for held in answering.values()]
        # Where a raylet was started again, an agent may wait for its warden.
        ends += [self._end_task(node) for node in nodes if node.id not in answering]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=CLOSE_S)
        for held in self._held.values():
            _kill(held.actor)
        self._held.clear()

    @property
    def _prefix(self) -> str:
        return f"warden-{self._cluster}-"

    def _started(self, claim: NodeClaim) -> _HeldWarden:
        """Its warden, found or started; it waits until Ray has the CPUs."""
        strategy: Any = NodeAffinitySchedulingStrategy(claim.node.id, soft=False)
        if claim.bundle is not None:
            strategy = PlacementGroupSchedulingStrategy(
                self.group, claim.bundle, placement_group_capture_child_tasks=False
            )
        order = self._order(claim)
        actor = (
            ray.remote(Warden)
            .options(
                name=f"{self._prefix}{claim.node.id}",
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=claim.cpus,
                num_gpus=claim.gpus,
                max_restarts=-1,
                scheduling_strategy=strategy,
            )
            .remote(order)
        )
        return _HeldWarden(claim, actor, actor.look.remote(order), time.monotonic())

    def _order(self, claim: NodeClaim) -> AgentOrder | None:
        if not claim.has_agent:
            return None
        assert self._serve is not None
        return AgentOrder(
            node=claim.node.name,
            host=self._serve.host,
            port=self._serve.port,
            fingerprint=self._serve.fingerprint,
            token=self._serve.join_token,
            cores=claim.cpus,
            gpus=claim.gpus,
            patience_s=ABANDONED_S,
        )

    def _look_at(self, held: _HeldWarden, now: float) -> None:
        """Take its answer if there is one, and ask again from time to time."""
        if held.answer is None:
            if now >= held.asked_at + ASK_EVERY_S:
                held.answer, held.asked_at = held.actor.look.remote(self._order(held.claim)), now
            return
        done, _ = ray.wait([held.answer], timeout=0)
        if not done:
            if held.state is None and now >= held.asked_at + WAITING_S:
                self._tell(held, f"waits for {held.claim.amount} that Ray has given to others")
            return
        answer, held.answer = held.answer, None
        try:
            self._learn(held, ray.get(answer))
        except ActorUnavailableError:
            return  # Ray starts it again.
        except RayError as error:
            self._tell(held, f"its warden ended ({' '.join(str(error).split())[-300:]})")
            self._retry_at[held.claim.node.id] = now + AGAIN_S
            _kill(held.actor)
            self._held.pop(held.claim.node.id, None)

    def _learn(self, held: _HeldWarden, state: AgentState) -> None:
        held.state, amount = state, held.claim.amount
        rest = f"; Ray keeps {held.claim.rest}" if held.claim.rest else ""
        if not held.claim.has_agent:
            self._tell(held, f"claimed {amount} for the head, which runs there{rest}")
        elif state.has_left:
            self._tell(held, f"its agent has left; Ray has its {amount} back")
            self._left.add(held.claim.node.id)
            _kill(self._held.pop(held.claim.node.id).actor)
        elif state.pid is not None:
            how = "adopted its agent" if state.is_adopted else "started its agent"
            more = f" ({state.trouble})" if state.trouble else ""
            self._tell(held, f"claimed {amount} and {how}{more}{rest}")
        elif state.trouble:
            self._tell(held, f"its agent ended: {state.trouble}")

    def _drop(self, held: _HeldWarden, *, is_alive: bool) -> None:
        """Its node is gone, or is not wanted any more."""
        _kill(held.actor)
        if is_alive:
            self._end_task(held.claim.node)
            self._tell(held, "is not used any more")
        else:
            self._tell(held, "Ray has lost it; its agent goes on where the machine does")

    def _end_task(self, node: RayNode) -> Any:
        """End the agent of a node without a warden."""
        assert self._serve is not None
        strategy = NodeAffinitySchedulingStrategy(node.id, soft=False)
        task = ray.remote(end_agent).options(num_cpus=0, scheduling_strategy=strategy)
        return task.remote(node.name, self._serve.join_token)

    def _end_stranger(self, name: str) -> None:
        """A warden of a head that serves no more (`cluster.check_free`)."""
        with suppress(ValueError, RayError):
            actor = ray.get_actor(name)
            ray.wait([actor.end.remote()], timeout=CLOSE_S)
            _kill(actor)
            self._say(f"Ended {name}, whose head serves no more")

    def _tell(self, held: _HeldWarden, text: str) -> None:
        """Once, not at every look."""
        if self._told.get(held.name) != text:
            self._told[held.name] = text
            self._say(f"Ray node {held.name}: {text}")


def _kill(actor: Any) -> None:
    with suppress(RayError, ValueError):
        ray.kill(actor, no_restart=True)
