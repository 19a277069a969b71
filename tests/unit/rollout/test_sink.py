"""Which complete groups make a batch, and when."""

import asyncio

import pytest
from rollout_builders import a_group, a_trajectory

from artangram.core.errors import BadInput
from artangram.core.rollout.admission import AdmissionLimits, Mix, Pace
from artangram.core.rollout.verdict import DropReason
from artangram.core.rollout.weights import Order, Staleness
from artangram.envs.protocol import Problem
from artangram.rollout.sink import CompleteGroup, Sink, SinkListener
from artangram.rollout.source import Issue
from artangram.rollout.updates import Updates

pytestmark = pytest.mark.looptime


class Heard(SinkListener):
    def __init__(self) -> None:
        self.evicted: list[tuple[str, DropReason]] = []

    def on_evicted(self, ready: CompleteGroup, reason: DropReason) -> None:
        self.evicted.append((ready.group.id, reason))


def a_sink(*, alpha: int = 2, order: Order = Order.OLDEST, shares: dict | None = None) -> Sink:
    updates = Updates(Staleness(max_staleness=alpha, order=order))
    limits = AdmissionLimits(environments=16, group_size=2, max_staleness=alpha)
    sink = Sink(updates, Mix(shares or {"math": 1}), Pace(), limits=limits)
    sink.listener = Heard()
    sink.updates = updates
    return sink


def ready(id: str, *versions: int, task: str = "math") -> CompleteGroup:
    issue = Issue(task=task, index=0, times=1, problem=Problem(id=id, task=task))
    return CompleteGroup(a_group(*(a_trajectory(v) for v in versions), id=id, task=task), issue)


async def ids(sink: Sink, num_groups: int, **options: int) -> list[str]:
    return [group.id for group in (await sink.batch(num_groups, **options)).groups]


@pytest.mark.parametrize(
    ("order", "expected"), [(Order.OLDEST, ["old", "mid"]), (Order.FRESHEST, ["new", "mid"])]
)
async def test_order_says_who_goes_first(order: Order, expected: list[str]):
    sink = a_sink(order=order)
    sink.updates.announce(2)
    for one in (ready("mid", 2, 1), ready("new", 2, 2), ready("old", 2, 0)):
        sink.put(one)
    assert await ids(sink, 2) == expected


async def test_stale_groups_are_evicted_before_a_batch_is_formed():
    sink = a_sink(alpha=0)
    sink.put(ready("old", 0, 0))
    sink.updates.announce(1)
    sink.put(ready("mixed", 1, 0))
    sink.put(ready("new", 1, 1))
    assert await ids(sink, 1) == ["new"]
    assert sink.listener.evicted == [("old", DropReason.TOO_STALE), ("mixed", DropReason.TOO_STALE)]


async def test_a_version_announced_while_the_trainer_waits_counts():
    sink = a_sink(alpha=0)
    sink.put(ready("old", 0, 0))
    asked = asyncio.create_task(sink.batch(2))
    await asyncio.sleep(1.0)
    sink.updates.announce(1)
    sink.put(ready("one", 1, 1))
    await asyncio.sleep(1.0)
    assert not asked.done()
    sink.put(ready("two", 1, 1))
    batch = await asked
    assert ([group.id for group in batch.groups], batch.version) == (["one", "two"], 1)
    assert batch.waited_s == pytest.approx(2.0)


async def test_a_task_that_is_early_does_not_take_the_seats_of_another():
    sink = a_sink(shares={"math": 1, "code": 1})
    for number in range(4):
        sink.put(ready(f"m{number}", 0, task="math"))
    asked = asyncio.create_task(sink.batch(2))
    await asyncio.sleep(5.0)
    assert not asked.done()
    sink.put(ready("c0", 0, task="code"))
    assert sorted(group.id for group in (await asked).groups) == ["c0", "m0"]


async def test_before_the_first_step_patience_has_no_end():
    sink = a_sink()
    sink.put(ready("a", 0))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sink.batch(2, min_groups=1), 1000.0)
    assert sink.num_ready("math") == 1


async def test_patience_ends_with_what_the_missing_part_of_a_step_costs():
    sink = a_sink()
    sink.put(ready("a", 0))
    await sink.batch(1)
    await asyncio.sleep(40.0)
    sink.put(ready("b", 0))
    began_at = asyncio.get_running_loop().time()
    assert await ids(sink, 4, min_groups=1) == ["b"]
    assert asyncio.get_running_loop().time() - began_at == pytest.approx(30.0)


async def test_the_trainer_is_busy_from_a_batch_to_the_next_version():
    sink = a_sink()
    assert not sink.trainer.is_busy
    sink.put(ready("a", 0))
    await sink.batch(1)
    assert sink.trainer.is_busy
    sink.updates.announce(1)
    assert not sink.trainer.is_busy
    assert sink.trainer.batch_groups == 1


async def test_asking_wrongly_says_what_is_right():
    sink = a_sink()
    asked = asyncio.create_task(sink.batch(1))
    await asyncio.sleep(0)
    with pytest.raises(BadInput, match="one at a time"):
        await sink.batch(1)
    asked.cancel()
    await asyncio.wait({asked})
    for num_groups, min_groups in ((0, None), (2, 3), (2, 0)):
        with pytest.raises(BadInput, match="min_groups"):
            await sink.batch(num_groups, min_groups=min_groups)
    with pytest.raises(BadInput, match="environments"):
        await sink.batch(1000)


async def test_a_batch_is_settled_once():
    sink = a_sink()
    sink.put(ready("a", 0))
    batch = await sink.batch(1)
    assert len(sink.settle(batch)) == 1
    with pytest.raises(BadInput, match="settle each batch once"):
        sink.settle(batch)


async def test_the_one_that_would_go_last_is_let_go_first():
    sink = a_sink()
    sink.put(ready("new", 1))
    sink.put(ready("old", 0))
    sink.evict_last("math")
    assert sink.listener.evicted == [("new", DropReason.SURPLUS)]
    assert repr(sink) == "<Sink: {'math': 1} ready, last 0>"
