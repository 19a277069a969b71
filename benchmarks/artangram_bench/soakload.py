"""Callers of a soak: trajectories whose actions tell what became of them, whatever fails.

- Every action has a key: a caller that gets no answer asks again, and must get the same answer.
- A success must have printed its own number. A failure must name a host that was allowed to fail.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random

from msgspec import Struct

from artangram.core.scheduling.action import Outcome
from artangram.orchestrator.client import Client, TrajectoryHandle
from artangram.orchestrator.records import ActionResult, Unreachable
from artangram_bench.soakwatch import MARK

LONGEST_S = 300.0
"""No action may take longer, with all that happens to it."""
AGAIN_S = 0.3


class SoakAction(Struct, kw_only=True):
    """One action, as its caller knows it."""

    number: int
    trajectory: str
    lasts_s: float
    repeatable: bool
    result: ActionResult | None = None
    ended_at: float = 0.0
    asked: int = 0


class Load:
    """Callers that act until it is over."""

    def __init__(
        self,
        client: Client,
        *,
        is_over: Callable[[int], bool],
        rng: Random,
        host_of: Callable[[int], str | None],
        may_fail: Callable[[str, float], bool],
    ) -> None:
        """`is_over` is asked with the number of actions, `host_of` where an action ran."""
        self._client = client
        self._is_over = is_over
        self._rng = rng
        self._host_of = host_of
        self._may_fail = may_fail
        #: By trajectory, the numbers of its actions.
        self._lives: dict[str, list[int]] = {}
        self.actions: list[SoakAction] = []
        self.num_ended = 0
        self.num_unreachable = 0
        self.num_lost_trajectories = 0
        self.violations: list[str] = []

    async def run(self, callers: int) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(callers):
                group.create_task(self._caller(number))

    async def ask_again(self) -> None:
        """Every key once more: an action that ended has one result for ever."""
        limit = asyncio.Semaphore(32)

        async def one(action: SoakAction) -> None:
            async with limit:
                handle = self._client.trajectory(memory_mb=64, id=action.trajectory)
                self._check_same(action, await self._settled(handle, action))

        await asyncio.gather(*(one(action) for action in self.actions))

    async def _caller(self, number: int) -> None:
        lives = 0
        while not self._is_over(len(self.actions)):
            lives += 1
            handle = self._client.trajectory(memory_mb=64, id=f"caller-{number}-{lives}")
            await self._until_answered(handle.open)
            for _ in range(self._rng.randint(1, 8)):
                if self._is_over(len(self.actions)) or not await self._act(handle):
                    break
            await self._until_answered(handle.close)

    async def _act(self, handle: TrajectoryHandle) -> bool:
        """Run one action; may the trajectory go on?"""
        is_long = self._rng.random() < 0.03
        action = SoakAction(
            number=len(self.actions),
            trajectory=handle.id,
            lasts_s=self._rng.uniform(2.0, 9.0) if is_long else self._rng.uniform(0.1, 0.4),
            repeatable=self._rng.random() < 0.5,
        )
        self.actions.append(action)
        self._lives.setdefault(handle.id, []).append(action.number)
        try:
            async with asyncio.timeout(LONGEST_S):
                action.result = await self._settled(handle, action)
        except TimeoutError:
            self.violations.append(f"action {action.number} did not end within {LONGEST_S:g} s")
            return False
        action.ended_at = time.monotonic()
        self.num_ended += 1
        self._check(action)
        if self._rng.random() < 0.2:
            self._check_same(action, await self._settled(handle, action))
        if not action.result.ok:
            self.num_lost_trajectories += 1
        return action.result.ok

    async def _settled(self, handle: TrajectoryHandle, action: SoakAction) -> ActionResult:
        script = f"echo ${MARK}; exec sleep {action.lasts_s:.3f}"
        while True:
            action.asked += 1
            try:
                return await handle.run(
                    ["sh", "-c", script],
                    environ={MARK: str(action.number)},
                    key=f"action-{action.number}",
                    kind="soak",
                    repeatable=action.repeatable,
                )
            except Unreachable:
                self.num_unreachable += 1
                await asyncio.sleep(AGAIN_S)

    async def _until_answered(self, ask: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await ask()
                return
            except Unreachable:
                self.num_unreachable += 1
                await asyncio.sleep(AGAIN_S)

    def _check(self, action: SoakAction) -> None:
        result = action.result
        assert result is not None
        if result.ok:
            if result.stdout != f"{action.number}\n":
                self.violations.append(f"action {action.number} printed {result.stdout!r}")
            return
        where = _hosts_named(result.reason)
        if "is gone, its files with it" in result.reason:
            where += [self._host_of(number) or "" for number in self._lives[action.trajectory]]
        if result.outcome is not Outcome.INFRA_FAILED or not any(
            self._may_fail(host, action.ended_at) for host in where
        ):
            told = f"action {action.number} ended as {result.outcome}: {result.reason}"
            self.violations.append(told)

    def _check_same(self, action: SoakAction, again: ActionResult) -> None:
        first = action.result
        if first is not None and (again.action_id, again.outcome, again.stdout) != (
            first.action_id,
            first.outcome,
            first.stdout,
        ):
            told = f"action {action.number} ended as {first.outcome} and as {again.outcome}"
            self.violations.append(told)


def _hosts_named(reason: str) -> list[str]:
    words = reason.replace(":", " ").replace(",", " ").split()
    if "orchestrator was restarted" in reason:
        words.append("cpu-0")
    return words
