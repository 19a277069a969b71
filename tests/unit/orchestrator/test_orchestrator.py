"""The life of actions and trajectories through the orchestrator, on virtual time."""

import asyncio
import random
from collections import Counter
from functools import partial

import pytest

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId
from artangram.core.scheduling.action import Outcome
from artangram.core.scheduling.decisions import Report
from artangram.managers.agent import Population
from artangram.observe.journal import Entry, JournalFull
from artangram.observe.journalmemory import MemoryJournal
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.client import TrajectoryHandle
from artangram.orchestrator.embedded import submission_of
from artangram.orchestrator.options import between
from artangram.orchestrator.orchestrator import Bounds
from artangram.orchestrator.records import ActionResult, Broken, Draining, Opening, Overloaded
from artangram.sandbox import SandboxGone
from artangram.sandbox.fake import Console, FakeSandbox
from artangram.testing.fakes import FakeCluster, a_setup, fake_cluster

LONG_S = 1e6
"""What is believed to take so long waits for what runs, and does not preempt it."""

pytestmark = pytest.mark.looptime


async def soon() -> None:
    """Let everything happen that happens at this instant."""
    await asyncio.sleep(0.001)


def begun(trajectory: TrajectoryHandle, *argv: str, **more: object) -> "asyncio.Task[ActionResult]":
    return asyncio.create_task(trajectory.run(argv, **more))  # type: ignore[arg-type]


def only_sandbox(client: FakeCluster) -> FakeSandbox:
    (sandbox,) = client.provider.live
    return sandbox


async def test_a_result_tells_all_about_the_run() -> None:
    async with fake_cluster() as client, client.trajectory(task="swe") as t:
        result = await t.run(["echo", "hello"])
        assert (result.ok, result.exit_code, result.stdout) == (True, 0, "hello\n")
        assert (result.record.kind, result.record.task) == ("swe/echo", "swe")
        slow = await t.run(["sleep", "3"], kind="nap")
        assert (slow.wait_s, slow.record.kind) == (0.0, "nap")
        assert slow.run_s == pytest.approx(3.0)
        assert slow.core_s == pytest.approx(3.0)


async def test_a_failed_program_is_a_result() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        result = await t.run(["false"])
        assert (result.ok, result.outcome, result.exit_code) == (False, Outcome.FAILED, 1)


async def test_an_action_waits_until_a_core_is_free_and_says_why() -> None:
    async with (
        fake_cluster(a_setup(cores=1)) as client,
        client.trajectory() as one,
        client.trajectory() as other,
    ):
        first, second = begun(one, "sleep", "10"), begun(other, "true", work_s=LONG_S)
        await soon()
        (waiting,) = (
            name for name, live in client.orchestrator.ledger.actions.items() if not live.lease
        )
        assert (await client.explain(waiting)).state == "waiting"
        status = await client.status()
        assert (status.queued, status.running, status.nodes[0].cores_used) == (1, 1, 1)
        assert (await second).wait_s == pytest.approx(10.0, abs=0.01)
        assert (await first).wait_s == 0.0


async def test_a_trajectory_holds_no_core_between_actions() -> None:
    async with (
        fake_cluster(a_setup(cores=1)) as client,
        client.trajectory() as one,
        client.trajectory() as other,
    ):
        await one.run(["true"])
        assert (await other.run(["true"])).wait_s == 0.0
        assert (await client.status()).nodes[0].cores_used == 0


async def test_a_running_action_grows_and_shrinks() -> None:
    async with fake_cluster(a_setup(cores=4)) as client, client.trajectory() as t:
        running = begun(t, "sleep", "20", cpu=between(1, 4), work_s=80.0)
        await soon()
        assert len(only_sandbox(client).cores) == 4
        async with client.trajectory() as other:
            await other.run(["sleep", "1"], cpu=2)
            wide = {len(box.cores) for box in client.provider.live}
            assert 4 not in wide or wide == {0, 4}
        await asyncio.sleep(1)
        assert len(only_sandbox(client).cores) == 4
        result = await running
        assert 60 < result.core_s < 80


async def test_cores_are_taken_from_the_running_before_others_get_them() -> None:
    async with fake_cluster(a_setup(cores=4)) as client, client.trajectory() as t:
        begun(t, "sleep", "20", cpu=between(1, 4), work_s=80.0)
        await soon()
        async with client.trajectory() as other:
            second = begun(other, "sleep", "5", cpu=2)
            await soon()
            held = [core for box in client.provider.live for core in box.cores]
            assert sorted(held) == [0, 1, 2, 3]
            await second


async def test_a_command_learns_its_degree() -> None:
    async with fake_cluster(a_setup(cores=4)) as client, client.trajectory() as t:
        result = await t.run(["echo", "-n", "{units}"], cpu=between(1, 3))
        assert result.stdout == "-n 3\n"
        assert "ARTANGRAM_UNITS=2\n" in (await t.run(["env"], cpu=2)).stdout


async def test_files_are_there_before_the_first_action_and_gone_after_the_last() -> None:
    async with fake_cluster() as client:
        async with client.trajectory() as t:
            await t.write("a/b.txt", "text")
            assert (await t.run(["cat", "a/b.txt"])).stdout == "text"
            assert await t.read("a/b.txt") == b"text"
            with pytest.raises(FileNotFoundError):
                await t.read("other")
        assert not client.provider.live


async def test_writes_before_the_first_action_make_one_sandbox() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        await asyncio.gather(*(t.write(f"{n}", b"x") for n in range(5)))
        assert len(client.provider.live) == 1


async def test_siblings_start_from_a_snapshot() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        await t.write("x", b"1")
        snapshot = await t.snapshot()
        async with client.trajectory(source=snapshot) as sibling:
            await sibling.write("y", b"2")
            assert (await sibling.run(["cat", "x"])).stdout == "1"
        with pytest.raises(FileNotFoundError):
            await t.read("y")


async def test_a_snapshot_without_a_name_goes_after_a_day_and_a_named_one_stays() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        await t.write("x", b"1")
        await t.snapshot()
        await t.snapshot("deps")
        await t.snapshot("brief", keep_s=60)
        listed = {one.keep_s for one in await client.snapshots()}
        assert listed == {86400.0, None, 60.0}
        for one in await client.snapshots():
            await client.forget(one)
        assert await client.snapshots() == ()
        with pytest.raises(BadInput, match=r"name: '../x' is not a name"):
            await t.snapshot("../x")
        with pytest.raises(BadInput, match=r"keep_s: -1.0 is not a length of time"):
            await t.snapshot(keep_s=-1)


async def test_queue_time_does_not_eat_the_time_limit() -> None:
    async with (
        fake_cluster(a_setup(cores=1)) as client,
        client.trajectory() as one,
        client.trajectory() as other,
    ):
        first = begun(one, "sleep", "30")
        second = await other.run(["sleep", "4"], timeout_s=5)
        assert (second.outcome, (await first).ok) == (Outcome.SUCCEEDED, True)
        third = await other.run(["sleep", "6"], timeout_s=5)
        assert (third.outcome, third.reason) == (Outcome.TIMED_OUT, "it ran longer than 5 s")
        assert third.run_s == pytest.approx(5.0)


async def test_a_deadline_ends_the_waiting_and_the_running() -> None:
    async with (
        fake_cluster(a_setup(cores=1)) as client,
        client.trajectory() as one,
        client.trajectory() as other,
    ):
        first = begun(one, "sleep", "100", deadline_s=7)
        await soon()
        second = await other.run(["true"], deadline_s=2, work_s=LONG_S)
        assert (second.outcome, second.record.started_at) == (Outcome.EXPIRED, None)
        assert second.act_s == pytest.approx(2.0)
        assert ((await first).outcome, (await first).reason) == (
            Outcome.EXPIRED,
            "its deadline passed",
        )
        assert (await first).act_s == pytest.approx(7.0, abs=0.01)


async def test_who_goes_away_takes_his_action_with_him() -> None:
    async with (
        fake_cluster(a_setup(cores=1)) as client,
        client.trajectory() as one,
        client.trajectory() as other,
    ):
        running = begun(one, "sleep", "1000")
        await soon()
        running.cancel()
        result = await other.run(["true"])
        assert result.wait_s < 0.1


async def test_an_action_with_a_key_outlives_its_caller_and_runs_once() -> None:
    counted: Counter[str] = Counter()

    async def count(console: Console, argv: tuple[str, ...]) -> int:
        await asyncio.sleep(5)
        counted[argv[1]] += 1
        console.print(b"%d" % counted[argv[1]])
        return 0

    async with fake_cluster(programs={"count": count}) as client, client.trajectory() as t:
        gone = begun(t, "count", "a", key="k")
        await soon()
        gone.cancel()
        again = await t.run(["count", "a"], key="k")
        later = await t.run(["count", "a"], key="k")
        assert again == later
        assert (again.stdout, again.act_s) == ("1", pytest.approx(5.0, abs=0.01))
        assert (await t.run(["count", "a"], key="other")).stdout == "2"


async def test_a_key_belongs_to_its_job_its_trajectory_and_its_request() -> None:
    async with (
        fake_cluster() as client,
        client.trajectory(job="a") as a,
        client.trajectory(job="a") as beside,
        client.trajectory(job="b") as b,
    ):
        running = begun(a, "sleep", "5", key="k")
        await soon()
        for _ in range(2):  # While it runs, and when it has ended.
            with pytest.raises(BadInput, match="'k' belongs to an action of another job"):
                await b.run(["sleep", "5"], key="k")
            for other in (a.run(["echo"], key="k"), beside.run(["sleep", "5"], key="k")):
                with pytest.raises(BadInput, match="'k' belongs to another request"):
                    await other
            await running
        assert await a.run(["sleep", "5"], key="k", deadline_s=1.0) == await running


async def test_cancelling_ends_the_waiting_at_once_and_the_running_soon() -> None:
    async with (
        fake_cluster(a_setup(cores=1)) as client,
        client.trajectory() as one,
        client.trajectory() as other,
    ):
        tasks = [begun(one, "sleep", "50"), begun(other, "sleep", "50")]
        await soon()
        for action_id in list(client.orchestrator.ledger.actions):
            client.orchestrator.cancel(action_id, reason="enough")
        results = await asyncio.gather(*tasks)
        assert {result.outcome for result in results} == {Outcome.CANCELLED}
        assert max(result.act_s for result in results) < 0.1


async def test_closing_a_trajectory_cancels_what_it_has() -> None:
    async with fake_cluster() as client:
        t = client.trajectory()
        await t.__aenter__()
        running = begun(t, "sleep", "1000")
        await soon()
        await t.close()
        assert (await running).reason == "its trajectory was closed"
        assert (await running).outcome is Outcome.CANCELLED
        assert not client.provider.live
        assert (await client.status()).trajectories == 0
        await t.close()
        with pytest.raises(BadInput, match="not open"):
            await t.run(["true"])


async def test_a_cancelled_job_leaves_and_the_others_stay() -> None:
    async with fake_cluster(a_setup(cores=1)) as client:
        boxes = [client.trajectory(job=job) for job in ("red", "red", "blue")]
        for box in boxes:
            await box.__aenter__()
        tasks = [begun(box, "sleep", "20") for box in boxes]
        await soon()
        await client.close_job("red")
        results = await asyncio.gather(*tasks)
        cancelled = [result.outcome is Outcome.CANCELLED for result in results]
        assert cancelled == [True, True, False]
        assert len(client.provider.live) == 1
        await client.close_job("nobody")


async def test_what_can_never_run_is_refused_with_the_reason() -> None:
    async with fake_cluster(a_setup(cores=2)) as client, client.trajectory() as t:
        result = await t.run(["true"], cpu=3)
        assert result.outcome is Outcome.REFUSED
        assert "can never fit" in result.reason
        with pytest.raises(BadInput, match="min 3 is above max 1"):
            await t.run(["true"], cpu=between(3, 1))
        with pytest.raises(BadInput, match="names no program"):
            await t.run([""], kind="x")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"timeout_s": 0}, "timeout_s"),
        ({"output_bytes": -1}, "output_bytes"),
        ({"cpu": 2, "needs": {"cpu": 1}}, "needs.cpu: is given twice"),
        ({"environ": {"A": "\0"}}, "environ"),
    ],
)
async def test_what_no_sandbox_could_run_is_refused_and_harms_nobody(
    wrong: dict[str, object], field: str
) -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        with pytest.raises(BadInput, match=field):
            await t.run(["true"], **wrong)  # type: ignore[arg-type]
        assert (await t.run(["true"])).ok


async def test_too_many_waiting_actions_are_refused_at_once() -> None:
    async with fake_cluster(a_setup(cores=1), bounds=Bounds(max_queued=2)) as client:
        boxes = [client.trajectory() for _ in range(4)]
        for box in boxes:
            await box.__aenter__()
        tasks = []
        for box in boxes[:3]:
            tasks.append(begun(box, "sleep", "5"))
            await soon()
        with pytest.raises(Overloaded, match="max_queued"):
            await boxes[3].run(["true"])
        await asyncio.gather(*tasks)
        assert (await boxes[3].run(["true"])).ok


async def test_one_job_cannot_use_up_the_queue_of_all() -> None:
    bounds = Bounds(max_queued=18)
    async with fake_cluster(a_setup(cores=1), bounds=bounds) as client:
        ours = [client.trajectory(job="greedy", memory_mb=16) for _ in range(30)]
        theirs = client.trajectory(job="modest", memory_mb=16)
        for one in (*ours, theirs):
            await one.__aenter__()
        first = begun(ours[0], "sleep", "1")
        await soon()
        tasks = [begun(one, "sleep", "1") for one in ours[1:]]
        await soon()
        refused = [task.exception() for task in tasks if task.done()]
        assert len(refused) == 29 - 16
        assert {type(error) for error in refused} == {Overloaded}
        assert "job 'greedy' has 16 of" in str(refused[-1])
        assert (await theirs.run(["true"])).ok
        await asyncio.gather(first, *tasks, return_exceptions=True)
        assert (await ours[0].run(["true"])).ok
        queue = client.orchestrator.ledger.queue
        assert (queue.total, queue.by_job) == (0, {})


async def test_a_burst_within_one_instant_is_bounded_too() -> None:
    async with fake_cluster(bounds=Bounds(max_queued=3)) as client:
        boxes = [client.trajectory() for _ in range(5)]
        for box in boxes:
            await box.__aenter__()
        tasks = [begun(box, "true") for box in boxes]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, Overloaded) for result in results] == [False] * 3 + [True] * 2


async def test_draining_finishes_what_there_is_and_takes_nothing_new() -> None:
    async with (
        fake_cluster(a_setup(cores=1)) as client,
        client.trajectory() as one,
        client.trajectory() as other,
    ):
        tasks = [begun(one, "sleep", "5"), begun(other, "sleep", "100")]
        await soon()
        draining = asyncio.create_task(client.orchestrator.drain(20))
        await soon()
        with pytest.raises(Draining):
            await one.run(["true"])
        await draining
        first, second = await asyncio.gather(*tasks)
        assert (first.outcome, second.outcome) == (Outcome.SUCCEEDED, Outcome.CANCELLED)
        assert "drain" in second.reason


@pytest.mark.parametrize("is_over", [True, False])
async def test_draining_waits_for_what_is_hardly_there_and_for_what_is_hardly_gone(
    is_over: bool,
) -> None:
    async with fake_cluster(journal=SlowJournal()) as client:
        t = await client.trajectory().__aenter__()
        running = begun(t, "sleep", "5")
        # The end is decided and not written down; or the beginning is not even decided.
        await asyncio.sleep(5.5 if is_over else 0)
        assert list(client.orchestrator.ledger.alive()) == []
        await client.orchestrator.drain(20)
        await client.orchestrator.aclose()
        assert (await running).ok


async def test_who_closes_what_is_gone_with_its_cluster_is_not_kept_waiting() -> None:
    async with fake_cluster() as client:
        t = await client.trajectory().__aenter__()
    with pytest.raises(Draining):
        await t.close()


async def test_a_dead_sandbox_is_an_infrastructure_failure_from_then_on() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        await t.run(["true"])
        running = begun(t, "sleep", "1000")
        await soon()
        await only_sandbox(client).close()
        assert (await running).outcome is Outcome.INFRA_FAILED
        after = await t.run(["true"])
        assert (after.outcome, "files" in after.reason) == (Outcome.INFRA_FAILED, True)
        with pytest.raises(SandboxGone):
            await t.read("x")


async def test_a_repeatable_action_runs_again_in_a_new_sandbox() -> None:
    async with fake_cluster() as client, client.trajectory() as t:
        running = begun(t, "sleep", "10", repeatable=True)
        await asyncio.sleep(5)
        await only_sandbox(client).close()
        result = await running
        assert (result.ok, result.record.attempts) == (True, 2)
        assert result.act_s == pytest.approx(15.0, abs=0.01)


class SlowJournal(MemoryJournal):
    """Takes a second for every commit."""

    def append(self, entry: Entry, **more: object) -> int:
        loop = asyncio.get_running_loop()
        loop.call_later(1.0, partial(super().append, entry, **more))  # type: ignore[arg-type]
        return 0


async def test_nobody_is_answered_before_the_commit_and_nobody_is_unknown_till_then() -> None:
    async with fake_cluster(journal=SlowJournal()) as client, client.trajectory() as t:
        first = begun(t, "sleep", "5", key="k", kind="x")
        await asyncio.sleep(5.5)
        assert not first.done()
        assert client.orchestrator.ledger.num_ended == 1
        second = client.orchestrator.submit(
            submission_of(
                RunRequest(trajectory=t.id, argv=("sleep", "5"), kind="x", key="k"),
                Opening(trajectory=t.id),
                action_id=ActionId("again"),
                deadline_at=None,
            )
        )
        assert await second.ended == await first


class FullJournal(MemoryJournal):
    """Has room for so many entries."""

    room = 2

    def append(self, entry: Entry, **more: object) -> int:
        self.room -= 1
        if self.room < 0:
            more.pop("then")(JournalFull("no room"))  # type: ignore[operator]
            return 0
        return super().append(entry, **more)  # type: ignore[arg-type]


async def test_without_a_journal_nobody_is_promised_anything() -> None:
    async with fake_cluster(journal=FullJournal()) as client:
        t = client.trajectory()
        await t.__aenter__()
        running = begun(t, "sleep", "1")
        with pytest.raises(Broken, match="no room"):
            await running
        with pytest.raises(Broken):
            await t.run(["true"])
        with pytest.raises(Broken):
            await t.close()


async def test_who_asks_again_without_a_journal_is_refused_and_not_kept_waiting() -> None:
    async with fake_cluster(journal=FullJournal()) as client, asyncio.timeout(10):
        t = client.trajectory()
        await t.__aenter__()
        first = begun(t, "sleep", "1", key="k")
        await soon()
        (action_id,) = client.orchestrator.ledger.actions
        with pytest.raises(Broken):
            await first
        with pytest.raises(Broken):
            await t.run(["sleep", "1"], key="k")
        with pytest.raises(Broken):
            client.orchestrator.receipt(action_id)


async def test_an_unknown_action_is_a_key_error() -> None:
    async with fake_cluster() as client:
        with pytest.raises(KeyError):
            client.orchestrator.receipt(ActionId("nobody"))
        with pytest.raises(KeyError):
            await client.explain("nobody")


async def test_two_trajectories_may_not_share_a_name() -> None:
    async with fake_cluster() as client, client.trajectory(id="t"):
        with pytest.raises(BadInput, match="already open"):
            await client.trajectory(id="t").__aenter__()


async def test_whatever_happens_every_action_ends_exactly_once() -> None:
    chance = random.Random(7)
    reported: Counter[str] = Counter()
    outcomes: Counter[Outcome] = Counter()

    async def trajectory(client: FakeCluster) -> None:
        async with client.trajectory() as t:
            for _ in range(50):
                argv = chance.choice([("sleep", "0.5"), ("false",), ("sleep", "9"), ("true",)])
                running = begun(
                    t,
                    *argv,
                    cpu=chance.choice([1, 2, between(1, 4)]),
                    timeout_s=chance.choice([None, 2]),
                    deadline_s=chance.choice([None, 8]),
                    repeatable=chance.random() < 0.5,
                )
                await asyncio.sleep(chance.choice([0, 1, 3]))
                if chance.random() < 0.1:
                    running.cancel()
                if chance.random() < 0.05 and client.provider.live:
                    await chance.choice(sorted(client.provider.live, key=lambda b: b.name)).close()
                await asyncio.wait({running})
                if not running.cancelled():
                    outcomes[running.result().outcome] += 1

    async with fake_cluster(a_setup(cores=64, memory_mb=120_000)) as client:
        await asyncio.gather(*(trajectory(client) for _ in range(200)))
        assert isinstance(client.journal, MemoryJournal)
        for entry in client.journal.entries:
            for decision in entry.decisions:
                if isinstance(decision, Report):
                    reported[decision.record.action_id] += 1
        assert set(reported.values()) == {1}
        assert len(reported) == 10_000
        assert not client.orchestrator.ledger.actions
    assert set(outcomes) == set(Outcome) - {Outcome.REFUSED, Outcome.CANCELLED}


async def test_a_trajectory_knows_how_long_its_actions_have_waited() -> None:
    async with (
        fake_cluster(a_setup(cores=1)) as client,
        client.trajectory() as one,
        client.trajectory() as other,
    ):
        first, second = begun(one, "sleep", "10"), begun(other, "sleep", "5", work_s=LONG_S)
        await asyncio.sleep(4)
        assert (one.queued_s, other.queued_s) == (0.0, pytest.approx(4.0, abs=0.01))
        await first
        await asyncio.sleep(3)
        assert other.queued_s == pytest.approx(10.0, abs=0.01)
        third = begun(one, "true", work_s=LONG_S)
        await asyncio.sleep(1)
        assert one.queued_s == pytest.approx(1.0, abs=0.01)
        await asyncio.gather(second, third)
        await asyncio.sleep(100)
        assert one.queued_s == pytest.approx(2.0, abs=0.01)
        await one.close()
        assert one.queued_s == pytest.approx(2.0, abs=0.01)


async def test_status_names_who_waits_longest_and_how_many_sandboxes_there_are() -> None:
    async with (
        fake_cluster(a_setup(cores=1)) as client,
        client.trajectory(id="a") as a,
        client.trajectory(id="b") as b,
        client.trajectory(id="c") as c,
    ):
        first = begun(a, "sleep", "10")
        await asyncio.sleep(1)
        second = begun(b, "true", kind="late", work_s=LONG_S)
        await asyncio.sleep(1)
        third = begun(c, "true", work_s=LONG_S)
        await asyncio.sleep(1)
        status = await client.status()
        waiting = [(one.trajectory, round(one.queued_s)) for one in status.waiting]
        assert waiting == [("b", 2), ("c", 1)]
        assert (await client.explain(status.waiting[0].action)).state == "waiting"
        await asyncio.gather(first, second, third)
        status = await client.status()
        assert status.waiting == ()
        assert status.nodes[0].population == Population(sandboxes=3)
