"""The rollout of one job, put together: source, dispatcher, runner, sink.

    async with Rollout(source, gateway, plan=plan, tokenizer=tokenizer) as rollout:
        while training:
            batch = await rollout.sink.batch(16)
            ...train on it, publish the next version...
            rollout.settle(batch)
            rollout.announce(version)     # what is stale now is shed while engines still run
            ...engines load...
            rollout.go_live(version)      # nothing samples with anything older any more

Runs on the time of the event loop and knows no other clock.
"""

import logging
from types import TracebackType
from typing import Self

from msgspec import Struct

from artangram.core.errors import InfraFailed
from artangram.core.ids import JobId
from artangram.core.rollout.admission import AdmissionLimits, Mix, Pace
from artangram.core.rollout.trajectory import Batch, Group
from artangram.core.rollout.verdict import DropReason
from artangram.core.rollout.weights import Staleness
from artangram.models.tokenizer import Tokenizer
from artangram.rollout.agents import AgentGateway
from artangram.rollout.dispatcher import Dispatcher, Spares
from artangram.rollout.phases import PhaseLimits
from artangram.rollout.runner import ModelClient, Retries, Runner
from artangram.rollout.sink import CompleteGroup, Sink
from artangram.rollout.source import Source, SourceState
from artangram.rollout.tally import RolloutTally
from artangram.rollout.updates import Updates

logger = logging.getLogger(__name__)


class Plan(Struct, frozen=True, kw_only=True):
    """How a job rolls out."""

    environments: int
    """Trajectories that may hold an environment at the same time."""
    group_size: int
    staleness: Staleness = Staleness()
    extra_groups: int = 0
    extra_siblings: int = 0
    spares: Spares = Spares()
    phases: PhaseLimits = PhaseLimits()
    retries: Retries = Retries()
    needs_signal: bool = False
    """Drop groups whose rewards are all equal."""
    temperature: float = 1.0

    @property
    def limits(self) -> AdmissionLimits:
        return AdmissionLimits(
            environments=self.environments,
            group_size=self.group_size,
            max_staleness=self.staleness.max_staleness,
            extra_groups=self.extra_groups,
            extra_siblings=self.extra_siblings,
        )


class SavedGroup(Struct, frozen=True, kw_only=True):
    """A complete group that no batch took, and the index of its problem."""

    group: Group
    index: int


class RolloutState(Struct, frozen=True, kw_only=True):
    """What a restart needs: where the source is, whose turn it is, what is complete."""

    version: int
    source: SourceState
    credit: dict[str, int]
    ready: tuple[SavedGroup, ...] = ()


class Rollout:
    """See the module. `life` is put before every id: another for each restart. Tasks of agents
    need an `AgentGateway`."""

    def __init__(
        self,
        source: Source,
        endpoint: ModelClient,
        *,
        plan: Plan,
        job: str = "default",
        tokenizer: Tokenizer | None = None,
        version: int = 0,
        life: str = "",
        agents: AgentGateway | None = None,
    ) -> None:
        limits = plan.limits
        self.source = source
        self.tally = RolloutTally()
        self.updates = Updates(plan.staleness, version=version)
        self._mix = Mix(source.shares(version))
        self.pace = Pace()
        self.sink = Sink(self.updates, self._mix, self.pace, limits=limits)
        self.runner = Runner(
            endpoint,
            self.updates,
            tokenizer=tokenizer,
            phases=plan.phases,
            retries=plan.retries,
            temperature=plan.temperature,
            agents=agents,
        )
        self.dispatcher = Dispatcher(
            source,
            self.runner,
            self.sink,
            updates=self.updates,
            limits=limits,
            mix=self._mix,
            pace=self.pace,
            tally=self.tally,
            job=JobId(job),
            spares=plan.spares,
            needs_signal=plan.needs_signal,
            life=life,
        )
        self.sink.listener = self.dispatcher

    def __repr__(self) -> str:
        return f"<Rollout: {self.updates.versions!r}, {self.dispatcher!r}, {self.sink!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop every trajectory; return when all have ended. The log says what was cut off."""
        biases = self.tally.biases()  # Before the end cuts off the rest, which says nothing.
        await self.dispatcher.close()
        self.sink.fail(InfraFailed("the rollout is closed: no more batches come of it"))
        for task, bias in biases.items():
            if bias.cancelled and bias.tokens is not None:
                text = "%s: %d trajectories kept, %d cancelled with %.2f times as many tokens each"
                logger.info(text, task, bias.kept, bias.cancelled, bias.tokens)

    def announce(self, version: int) -> None:
        """The trainer made `version`: what is too old for it is stopped at once."""
        self.updates.announce(version)
        self._mix.set_shares(self.source.shares(version))
        self.dispatcher.on_update()

    def go_live(self, version: int) -> None:
        """Every engine in service samples with `version` or newer."""
        self.updates.go_live(version)
        self.dispatcher.on_update()

    def settle(self, batch: Batch, *, is_skipped: bool = False) -> None:
        """The batch was trained on, or its step was skipped; this will not be forgotten."""
        for issue in self.sink.settle(batch):
            if is_skipped:
                self.source.drop(issue, DropReason.SKIPPED)
            else:
                self.source.train(issue)

    def save(self) -> RolloutState:
        """What was handed over but not settled counts as outstanding."""
        ready = (SavedGroup(group=r.group, index=r.issue.index) for r in self.sink.ready)
        return RolloutState(
            version=self.updates.current,
            source=self.source.save(),
            credit=self._mix.credit,
            ready=tuple(ready),
        )

    def restore(self, state: RolloutState) -> None:
        """Continue where another life was. Before the first batch is asked for."""
        self.source.restore(state.source)
        self._mix.restore(state.credit)
        for saved in state.ready:
            issue = self.source.reclaim(saved.group.task, saved.index)
            self.sink.put(CompleteGroup(saved.group, issue))
