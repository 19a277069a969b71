"""A cluster that goes away and comes back: who waits, what is asked again, and what never is."""

import asyncio

import pytest

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.ids import JobId, TrajectoryId
from artangram.orchestrator.arguments import RunRequest
from artangram.orchestrator.records import ClusterStatus, Opening, Unreachable
from artangram.pipeline.reconnect import ReconnectingClient

pytestmark = pytest.mark.looptime

STATUS = ClusterStatus(
    policy="elastic",
    queued=0,
    running=0,
    trajectories=0,
    ended=0,
    uptime_s=0.0,
    is_draining=False,
    nodes=(),
)


class Flickering:
    """An orchestrator that is there only after `back_at`; it hears all, and answers only then."""

    def __init__(self, back_at=0.0):
        self.back_at = back_at
        self.heard = []

    def answer(self, what):
        self.heard.append(what)
        if asyncio.get_running_loop().time() < self.back_at:
            raise Unreachable("it hung up")
        return what

    async def run(self, request):
        return self.answer(request.argv)

    async def close_job(self, job):
        self.answer(job)

    async def open(self, opening):
        first = opening.trajectory not in self.heard
        self.answer(opening.trajectory)
        if not first:
            raise BadInput("trajectory", "is already open", "use a new id")

    async def status(self):
        self.answer("status")
        return STATUS


def a_request(**fields):
    return RunRequest(trajectory=TrajectoryId("t"), argv=("x",), kind="x", **fields)


async def test_what_may_be_asked_twice_is_asked_again_when_the_cluster_is_back():
    client = Flickering(back_at=30.0)
    patient = ReconnectingClient(client)
    assert await patient.run(a_request(repeatable=True)) == ("x",)
    assert await patient.run(a_request(key="k")) == ("x",)
    assert [word for word in client.heard if word != "status"] == [("x",)] * 3
    assert 30 <= asyncio.get_running_loop().time() < 32


async def test_what_may_not_run_twice_fails_as_infrastructure_and_only_when_it_is_back():
    client = Flickering(back_at=30.0)
    with pytest.raises(InfraFailed):
        await ReconnectingClient(client).run(a_request())
    assert client.heard.count(("x",)) == 1
    assert asyncio.get_running_loop().time() >= 30


async def test_an_opening_whose_answer_was_lost_is_open():
    patient = ReconnectingClient(Flickering(back_at=3.0))
    await patient.open(Opening(trajectory=TrajectoryId("t")))
    with pytest.raises(BadInput):
        await patient.open(Opening(trajectory=TrajectoryId("t")))


async def test_an_opening_that_is_refused_by_the_cluster_that_came_back_is_not_open():
    client = Flickering(back_at=3.0)

    async def refuse(opening):
        client.answer(opening.trajectory)
        raise BadInput("place.source", "is not offered", "name its folder under `images:`")

    client.open = refuse
    with pytest.raises(BadInput, match="not offered"):
        await ReconnectingClient(client).open(Opening(trajectory=TrajectoryId("t")))


async def test_all_who_wait_look_together():
    client = Flickering(back_at=10.0)
    patient = ReconnectingClient(client)
    await asyncio.gather(*(patient.close_job(JobId(f"{n}")) for n in range(50)))
    assert client.heard.count("status") < 30


async def test_a_cluster_that_stays_away_ends_the_run():
    patient = ReconnectingClient(Flickering(back_at=1e9), patience_s=60.0)
    with pytest.raises(InfraFailed):
        await patient.run(a_request(repeatable=True))
    with pytest.raises(BadInput, match="--resume"):
        await patient.lost


async def test_one_who_leaves_leaves_the_others_waiting():
    patient = ReconnectingClient(Flickering(back_at=10.0))
    leaver, stayer = (asyncio.create_task(patient.close_job(JobId(n))) for n in "ab")
    await asyncio.sleep(1)
    leaver.cancel()
    await stayer
    assert leaver.cancelled()
