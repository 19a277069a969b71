"""A service on its devices: gathers the calls of many into batches, and notices when it is lost.

- One batch at a time, of `batch` payloads at most for each replica. Calls that arrive meanwhile
  wait and make up the next one; the scheduler lets no more than `batch` calls run at once, so the
  line cannot grow.
- A call that is a JSON list is many payloads, answered by a list when all of them are. The payloads
  of a batch are divided among the replicas: that is what a higher degree is for.
- A call begins when the first batch with its payloads does; what it stood in the line is not run.
- A cancelled call changes nothing for the others of its batch. When all are cancelled and no answer
  comes within `PATIENCE_S`, or when a batch takes longer than the service may, the service hangs.
- A residency that crashes, hangs or runs out of memory is ended, all of it, and lost: every call on
  it raises `ReplicaLost`, and `on_lost` is called once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from artangram.core.errors import CallFailed, InfraFailed
from artangram.services.devices import Answer, Answered, PredictFailed, ReplicaLost, ServiceReplica
from artangram.services.service import Service

PATIENCE_S = 2.0
"""How long a batch may go on after all its calls were cancelled."""

DRAIN_S = 2.0
"""How long an eviction waits for a batch under way; the books evict only what is idle."""


class _Asked:
    """A call: its payloads, their answers, and the future of its caller."""

    __slots__ = ("_answers", "_on_begun", "answer", "is_list", "items")

    def __init__(self, body: bytes, on_begun: Callable[[], None]) -> None:
        self.is_list = body.lstrip().startswith(b"[")
        self.items = _parts(body) if self.is_list else [body]
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers: list[Answer] = []
        self._on_begun = on_begun

    def next_items(self, most: int) -> list[bytes]:
        """At most this number of payloads that have no answer yet; they are asked now."""
        done = len(self._answers)
        if not done:
            self._on_begun()
        return self.items[done : done + most]

    def settle(self, answers: list[Answer]) -> None:
        """The next payloads were answered."""
        self._answers += answers
        if self.answer.done() or len(self._answers) < len(self.items):
            return
        failed = [answer for answer in self._answers if isinstance(answer, PredictFailed)]
        if failed:
            kind = InfraFailed if any(each.is_infra for each in failed) else CallFailed
            self.answer.set_exception(kind(failed[0].problem))
            return
        bodies = [answer.body for answer in self._answers if isinstance(answer, Answered)]
        self.answer.set_result(b"[" + b",".join(bodies) + b"]" if self.is_list else bodies[0])

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class ResidentService:
    """See the module."""

    def __init__(
        self, service: Service, replicas: list[ServiceReplica], *, on_lost: Callable[[str], None]
    ) -> None:
        self.service = service
        self.replicas = replicas
        self._on_lost = on_lost
        self._waiting: deque[_Asked] = deque()
        self._under_way: list[_Asked] = []
        self._serving: asyncio.Task[None] | None = None
        self._gone = ""
        self._ending: asyncio.Task[None] | None = None
        for replica in replicas:
            replica.lost.add_done_callback(self._on_replica_lost)

    def __repr__(self) -> str:
        state = self._gone or f"{self.num_calls} calls"
        return f"<Residency {self.service.id}: {len(self.replicas)} replicas, {state}>"

    @property
    def num_calls(self) -> int:
        """Calls whose callers still wait."""
        return sum(not call.answer.done() for call in (*self._under_way, *self._waiting))

    async def ask(self, body: bytes, *, on_begun: Callable[[], None] = lambda: None) -> bytes:
        """The answer to one call; both are JSON. `CallFailed` if the model raised."""
        if self._gone:
            raise ReplicaLost(f"{self.service.id} is gone: {self._gone}")
        call = _Asked(body, on_begun)
        if not call.items:
            return b"[]"
        self._waiting.append(call)
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        return await call.answer

    async def end(self) -> None:
        """Free the devices: let the batch under way finish for a moment, then end all replicas."""
        if self._ending is None:
            if self._serving is not None and self.num_calls:
                await asyncio.wait({self._serving}, timeout=DRAIN_S)
            self._ending = asyncio.create_task(self._end("it was evicted"))
        await asyncio.wait({self._ending})

    async def _serve(self) -> None:
        while not self._gone and (batch := self._next_batch()):
            self._under_way = [call for call, _ in batch]
            await self._round(batch)
        if not self._gone:
            self._under_way = []  # Else `_end` of the replicas fails them.
        self._serving = None

    def _next_batch(self) -> list[tuple[_Asked, list[bytes]]]:
        """Calls in their order and what is asked of each; the last may have more to ask."""
        batch, room = [], self.service.batch * len(self.replicas)
        while self._waiting and room:
            call = self._waiting.popleft()
            if call.answer.done():
                continue  # Given up.
            items = call.next_items(room)
            batch.append((call, items))
            room -= len(items)
        return batch

    async def _round(self, batch: list[tuple[_Asked, list[bytes]]]) -> None:
        calls = [call for call, _ in batch]
        asked = [item for _, items in batch for item in items]
        work = asyncio.ensure_future(self._predict(asked))
        hang = await _hang(work, calls, longest_s=self.service.longest_predict_s)
        if hang:
            self._lose(hang)
        try:
            answers = iter(await work)
        except Exception as error:  # noqa: BLE001 - whatever it was, no caller may wait for ever
            self._lose(str(error) if isinstance(error, ReplicaLost) else repr(error))
            return
        for call, items in batch:
            call.settle([next(answers) for _ in items])
        if not calls[-1].answer.done():
            self._waiting.appendleft(calls[-1])

    async def _predict(self, items: list[bytes]) -> list[Answer]:
        """Divide `items` evenly among the replicas."""
        shares = _divided(items, len(self.replicas))
        pairs = zip(self.replicas, shares, strict=False)  # Few payloads leave replicas idle.
        answers = await asyncio.gather(*(self._share(*pair) for pair in pairs))
        return [answer for share in answers for answer in share]

    async def _share(self, replica: ServiceReplica, share: list[bytes]) -> list[Answer]:
        answers = await replica.predict(share)
        if len(answers) != len(share):
            raise ReplicaLost(f"it gave {len(answers)} answers to {len(share)} payloads")
        return answers

    def _on_replica_lost(self, lost: asyncio.Future[str]) -> None:
        if not lost.cancelled():
            self._lose(lost.result())

    def _lose(self, reason: str) -> None:
        if self._gone:
            return
        self._gone = reason
        self._on_lost(reason)
        self._ending = asyncio.create_task(self._end(reason))

    async def _end(self, reason: str) -> None:
        """End every replica, then the calls: a caller that hears of it may use the devices."""
        self._gone = self._gone or reason
        await asyncio.gather(*(replica.end() for replica in self.replicas))
        error = ReplicaLost(f"{self.service.id} was lost: {self._gone}")
        for call in (*self._under_way, *self._waiting):
            call.fail(error)
        if self._serving is not None:
            await asyncio.wait({self._serving})


async def _hang(
    work: asyncio.Future[list[Answer]], calls: list[_Asked], *, longest_s: float
) -> str:
    """Wait until the batch is done; why it hangs, if it does."""
    given_up = asyncio.ensure_future(asyncio.wait([call.answer for call in calls]))
    either: set[asyncio.Future[Any]] = {work, given_up}
    try:
        await asyncio.wait(either, timeout=longest_s, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and given_up.done():
            await asyncio.wait({work}, timeout=PATIENCE_S)
            longest_s = PATIENCE_S
    finally:
        given_up.cancel()
    if work.done():
        return ""
    return f"it hung: no answer for {longest_s:g} s"


def _divided(items: list[bytes], count: int) -> list[list[bytes]]:
    """`items` in order, in at most `count` parts whose sizes differ by one at most."""
    size, more = divmod(len(items), count)
    parts, start = [], 0
    for index in range(count):
        end = start + size + (index < more)
        parts.append(items[start:end])
        start = end
    return [part for part in parts if part]


def _parts(body: bytes) -> list[bytes]:
    try:
        return [bytes(part) for part in msgspec.json.decode(body, type=list[msgspec.Raw])]
    except msgspec.DecodeError as error:
        raise CallFailed(f"the payload is not JSON: {error}") from None
