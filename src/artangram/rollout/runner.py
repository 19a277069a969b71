"""One coroutine per trajectory: reset, turns, reward, and a clean end whatever happens.

- An `Attempt` ends exactly once, as a `Trajectory` with a status. `stop` ends it early: what it
  runs in the engine, its environment and its pending reward are really cancelled before it has
  ended.
- Stale is checked before and after every turn; the announcement of a version checks the rest.
- Each phase has a limit of work (`phases`); at its end the phase is aborted, not only reported.
- Infrastructure failure is tried again with a fresh environment and session, within a budget. A
  failed reward is asked for again. Without a place in an environment any more there is no other
  attempt: the group starts another member instead.
- An environment that can `detach` its reward is closed before the reward is known, and its place
  given to the next trajectory.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from artangram.aio import uncancelled
from artangram.core.errors import BadInput, InfraFailed
from artangram.core.ids import JobId, TrajectoryId
from artangram.core.rollout.trajectory import Segment, Trajectory, TrajectoryStatus
from artangram.envs.protocol import Detachable, Env, Problem, Scorer, Solving, Task, TurnRewards
from artangram.gateway.engines.protocol import FinishReason, Sampling
from artangram.gateway.gateway import ContextFull
from artangram.gateway.rules import SamplingRules
from artangram.gateway.session import SessionClosed
from artangram.models.tokenizer import Tokenizer
from artangram.rollout.agents import AgentGateway, AgentTurns
from artangram.rollout.closing import AttemptClosing
from artangram.rollout.phases import PhaseLimits, RunawayTasks, TooLong, within
from artangram.rollout.updates import Updates

logger = logging.getLogger(__name__)

T = TypeVar("T")


class SampledReply(Protocol):
    """The answer of the model."""

    @property
    def text(self) -> str: ...

    @property
    def finish(self) -> FinishReason: ...


class ModelSession(Protocol):
    """One trajectory's conversation; it keeps the very tokens."""

    @property
    def oldest_version(self) -> int | None:
        """Of the oldest sampled token, those of a running turn included."""
        ...

    def segments(self) -> tuple[Segment, ...]: ...

    def branches(self) -> tuple[tuple[Segment, ...], ...]:
        """Further conversations in which something was sampled."""
        ...

    async def generate(self, new: str, sampling: Sampling) -> SampledReply: ...

    async def close(self) -> None:
        """End what runs. The segments stay readable."""
        ...


class ModelClient(Protocol):
    """Opens sessions with the model; `artangram.gateway.Gateway` is one."""

    def open(
        self, session_id: str, *, task: str = "", tokenizer: Tokenizer | None = None
    ) -> ModelSession: ...


class Retries(Struct, frozen=True, kw_only=True):
    """What infrastructure failure costs."""

    attempts: int = 2
    """At one trajectory, beyond the first."""
    backoff_s: float = 0.5
    """Before the first of them; each next waits twice as long."""
    rewards: int = 2
    """Times that a failed reward is asked for again."""


class Assignment(Struct, frozen=True, kw_only=True):
    """The right to one trajectory."""

    id: TrajectoryId
    job: JobId
    group: str
    task: Task
    problem: Problem


class Stale(Exception):
    """Its oldest token is older than the bound allows."""


class Runner:
    """What all trajectories share."""

    def __init__(
        self,
        endpoint: ModelClient,
        updates: Updates,
        *,
        tokenizer: Tokenizer | None = None,
        phases: PhaseLimits | None = None,
        retries: Retries | None = None,
        temperature: float = 1.0,
        agents: AgentGateway | None = None,
        trains: bool = True,
    ) -> None:
        self.endpoint = endpoint
        self.agents = agents
        self.trains = trains
        """What is sampled is for training: agents may not sample what could not be scored."""
        self.updates = updates
        self.tokenizer = tokenizer
        self.phases = phases or PhaseLimits()
        self.retries = retries or Retries()
        self.temperature = temperature
        self.strays = RunawayTasks(self.phases.close_s)
        self.late: dict[str, int] = {}
        """How often each phase was ended at its limit."""

    def start(self, ticket: Assignment, *, on_env_free: Callable[[], None]) -> "Attempt":
        """Begin a trajectory. `on_env_free` is called once, when its environment has closed."""
        return Attempt(self, ticket, on_env_free=on_env_free)


class Attempt:
    """One trajectory under way; await `ended`."""

    def __init__(
        self, runner: Runner, ticket: Assignment, *, on_env_free: Callable[[], None]
    ) -> None:
        self._runner = runner
        self.ticket = ticket
        self.started_at = asyncio.get_running_loop().time()
        self.phase = "start"
        self._on_env_free: Callable[[], None] | None = on_env_free
        self._session: ModelSession | None = None
        self._stopped: tuple[TrajectoryStatus, str] | None = None
        self._turns = 0
        self._turn_rewards: list[float | None] = []
        self.error: Exception | None = None
        """What its last try raised, if that ended it."""
        self._seconds: dict[str, float] = {}
        self.ended: asyncio.Future[Trajectory] = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._attempts())
        self._running.add_done_callback(self._on_done)

    def __repr__(self) -> str:
        return f"<Life {self.ticket.id}: {self.phase}, {self._turns} turns>"

    @property
    def oldest_version(self) -> int | None:
        return None if self._session is None else self._session.oldest_version

    def stop(self, status: TrajectoryStatus, reason: str) -> None:
        """End it early. Nothing happens if it has ended or was stopped before."""
        if self._stopped is None and not self.ended.done():
            self._stopped = (status, reason)
            self._running.cancel()

    def _on_done(self, running: "asyncio.Task[Trajectory]") -> None:
        """Here and not in the coroutine: one that is stopped before it began never runs."""
        self._free_env()
        if running.cancelled():
            # Even when the whole program is cancelled, this trajectory has an end and a reason.
            stopped = self._stopped or (TrajectoryStatus.SURPLUS, "cancelled from outside")
            self.ended.set_result(self._end(*stopped))
        else:
            self.ended.set_result(running.result())

    async def _attempts(self) -> Trajectory:
        retries = self._runner.retries
        number = 0
        while True:
            try:
                return await self._attempt(number)
            except Stale:
                return self._end(TrajectoryStatus.STALE, "its oldest token fell behind the bound")
            except Exception as error:  # noqa: BLE001 (whatever it raises is infrastructure)
                logger.info("%s: attempt %d: %r", self.ticket.id, number, error)
                if number == retries.attempts or self._on_env_free is None:
                    self.error = error
                    return self._end(
                        TrajectoryStatus.INFRA_FAILED, f"{type(error).__name__}: {error}"
                    )
            self.phase = "backoff"
            await asyncio.sleep(retries.backoff_s * 2**number)
            number += 1

    async def _attempt(self, number: int) -> Trajectory:
        """From a fresh environment and session to an end that may train."""
        ticket, runner = self.ticket, self._runner
        name = ticket.id if number == 0 else f"{ticket.id}.r{number}"
        self._turns = 0
        self._turn_rewards = []
        self._session = None
        env = ticket.task.env(ticket.problem, trajectory=name)
        closing = AttemptClosing(env, runner.strays, limit_s=runner.phases.close_s)
        try:
            session = runner.endpoint.open(name, task=ticket.task.name, tokenizer=runner.tokenizer)
            self._session = closing.session = session
            if isinstance(env, Solving):
                status = await self._solved(env, session)
            else:
                status = await self._converse(env, session)
            await closing.close_session()
            reward = await self._reward(env, closing)
            self._check_fresh()
            return self._end(status, "", reward=reward)
        finally:
            await uncancelled(closing.close())

    async def _converse(self, env: Env, session: ModelSession) -> TrajectoryStatus:
        runner, task = self._runner, self.ticket.task
        limits = runner.phases
        sampling = Sampling(max_tokens=task.max_tokens, temperature=runner.temperature)
        seen = await self._phase("reset", env.reset(), limits.reset_s, of=env)
        is_cut = False
        while not seen.done:
            if self._turns >= task.max_turns:
                return TrajectoryStatus.TRUNCATED
            await self._fresh_weights()
            try:
                reply = await self._phase(
                    "generate", session.generate(seen.text, sampling), limits.generate_s, of=session
                )
            except ContextFull:
                return TrajectoryStatus.TRUNCATED
            if reply.finish is FinishReason.ABORT:
                raise InfraFailed("its turn was aborted in the engine")
            self._check_fresh()
            self._turns += 1
            is_cut = reply.finish is FinishReason.LENGTH
            seen = await self._phase("turn", env.respond(reply.text), limits.turn_s, of=env)
            self._turn_rewards.append(None if seen.reward is None else _a_number(seen.reward))
        if seen.failed:
            return TrajectoryStatus.TASK_FAILED
        return TrajectoryStatus.TRUNCATED if is_cut else TrajectoryStatus.OK

    async def _solved(self, env: Solving, session: ModelSession) -> TrajectoryStatus:
        """An agent's whole attempt: it asks the model by itself, and every turn is checked."""
        agents, limit_s = self._runner.agents, self._runner.phases.agent_s
        if agents is None:
            fix = "serve the gateway and give it to the rollout"
            raise BadInput("agents", f"{self.ticket.task.name} has no way to the model", fix)
        turns = AgentTurns(env, session, most=self.ticket.task.max_turns, fresh=self._fresh_turn)
        rules = SamplingRules(
            temperature=self._runner.temperature,
            is_enforced=env.samples_as_run,
            trains=self._runner.trains,
            most_tokens=self.ticket.task.max_tokens,
        )
        with agents.admitted(session, before_turn=turns.before_turn, rules=rules) as admitted:
            try:
                seen = await self._phase("agent", env.solve(admitted.llm), limit_s, of=turns)
            except Exception:
                # What an agent makes of a full context is its own affair: the attempt is cut short.
                if not (admitted.is_full or turns.are_used_up):
                    raise
                return TrajectoryStatus.TRUNCATED
            finally:
                self._turns = turns.count
        self._check_fresh()
        if admitted.is_full or turns.are_used_up:
            return TrajectoryStatus.TRUNCATED
        if seen.failed:
            return TrajectoryStatus.TASK_FAILED
        return TrajectoryStatus.TRUNCATED if admitted.is_cut else TrajectoryStatus.OK

    async def _fresh_turn(self) -> None:
        """Before each turn of an agent; a stale attempt ends here, and its agent is cancelled."""
        try:
            await self._runner.updates.until_fresh()
            self._check_fresh()
        except Stale:
            self.stop(TrajectoryStatus.STALE, "its oldest token fell behind the bound")
            raise SessionClosed(f"{self.ticket.id} is too old to train on; stop") from None

    async def _fresh_weights(self) -> None:
        """Before a turn: tokens sampled now must not be stale at once."""
        self.phase = "weights"
        await self._runner.updates.until_fresh()
        self._check_fresh()

    def _check_fresh(self) -> None:
        updates = self._runner.updates
        if updates.staleness.sheds_early and updates.is_stale(self.oldest_version):
            raise Stale

    async def _reward(self, env: Env, closing: AttemptClosing) -> float:
        score = await self._scorer(env, closing)
        limit_s = self._runner.phases.reward_s
        failures = 0
        while True:
            try:
                given = await self._phase("reward", _asked(score), limit_s, of=env)
                if not isinstance(given, TurnRewards):
                    return _a_number(given)
                self._turn_rewards = [None if r is None else _a_number(r) for r in given.turns]
                return _a_number(given.reward)
            except Exception as error:
                logger.info("%s: reward: %r", self.ticket.id, error)
                failures += 1
                if failures > self._runner.retries.rewards:
                    raise

    async def _scorer(self, env: Env, closing: AttemptClosing) -> Scorer:
        if not isinstance(env, Detachable):
            return env.score
        score = await self._phase("reward", env.detach(), self._runner.phases.reward_s, of=env)
        await closing.close_env()
        self._free_env()
        return score

    async def _phase(
        self, name: str, work: Coroutine[Any, Any, T], limit_s: float, *, of: object
    ) -> T:
        """Do one phase within its limit and remember how long it took."""
        self.phase = name
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            return await within(
                work, limit_s, of=of, what=f"{self.ticket.id}: {name}", strays=self._runner.strays
            )
        except TooLong:
            self._runner.late[name] = self._runner.late.get(name, 0) + 1
            raise
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + loop.time() - began_at

    def _end(
        self, status: TrajectoryStatus, reason: str, *, reward: float | None = None
    ) -> Trajectory:
        self.phase = "ended"
        ticket = self.ticket
        return Trajectory(
            id=ticket.id,
            job=ticket.job,
            task=ticket.task.name,
            problem=ticket.problem.id,
            group=ticket.group,
            segments=() if self._session is None else self._session.segments(),
            branches=() if self._session is None else self._session.branches(),
            status=status,
            reward=reward,
            reason=reason,
            turns=self._turns,
            turn_rewards=self._given_turn_rewards(),
            info={f"{phase}_s": seconds for phase, seconds in self._seconds.items()},
        )

    def _given_turn_rewards(self) -> tuple[float | None, ...]:
        has_any = any(reward is not None for reward in self._turn_rewards)
        return tuple(self._turn_rewards) if has_any else ()

    def _free_env(self) -> None:
        if self._on_env_free is not None:
            free, self._on_env_free = self._on_env_free, None
            free()


async def _asked(score: Scorer) -> float | TurnRewards:
    return await score()


def _a_number(reward: float) -> float:
    """Anything else would make a group's statistics worthless."""
    if not math.isfinite(reward):
        raise InfraFailed(f"its reward is {reward!r}, which is not a finite number")
    return float(reward)
