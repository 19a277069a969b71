"""The books of a GPU pool balance after every step, whatever the steps are."""

from gpu_support import a_pool, a_service, check_books
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from scheduler_world import examples

from artangram.core.ids import NodeId, ServiceId
from artangram.core.scheduling.pools.buddy import Buddy
from artangram.core.scheduling.pools.gpunode import Residency

SERVICES = {
    "big": a_service(120_000, runtime_mb=2_000),
    "even": a_service(76_000, batch=3),
    "half": a_service(30_000, runtime_mb=500),
    "odd": a_service(7_001, degrees=(1, 4)),
    "small": a_service(9_000, runtime_mb=500),
    "third": a_service(25_000, degrees=(1, 2)),
}
"""Of 80 000 MB a device: two or three share one, and another needs all of them gone."""

names = st.sampled_from([ServiceId(name) for name in SERVICES])
NODES = [NodeId("gpu-0"), NodeId("gpu-1")]


class GpuBooks(RuleBasedStateMachine):
    """Restores, takes, ends and losses in any order."""

    runs = Bundle("runs")

    @initialize(
        devices=st.sampled_from([1, 2, 4, 6, 8, 11, 16]), host=st.sampled_from([0, 130_000])
    )
    def begin(self, devices: int, host: int) -> None:
        self.pool = a_pool(SERVICES, nodes=2, devices=devices, host_memory_mb=host)
        self.running: list[Residency] = []
        self.now = 0.0

    @rule(service=names, data=st.data())
    def restore(self, service: ServiceId, data: st.DataObject) -> None:
        self.now += 1.0
        degrees = self.pool.degrees(service)
        chunks = [
            chunk
            for degree in degrees
            for chunk in self.pool.chunks(service, degree, worth=lambda r: r.used_at)
        ]
        if chunks:
            chunk = data.draw(st.sampled_from(chunks))
            assert all(r.busy == 0 for r in chunk.evicted), "a busy residency was to be evicted"
            self.pool.restore(service, chunk, self.now)
        elif any(self.pool.fits(degree) for degree in degrees):
            assert any(self.pool.is_startable(r) for r in self.pool.residents(service))

    @rule(target=runs, data=st.data())
    def take_resident(self, data: st.DataObject) -> Residency | None:
        self.now += 1.0
        ready = [
            residency
            for service in self.pool.services()
            for residency in self.pool.residents(service)
            if self.pool.is_startable(residency) or self.pool.is_joinable(residency)
        ]
        return self._take(data.draw(st.sampled_from(ready))) if ready else None

    def _take(self, residency: Residency) -> Residency:
        busy = [r for r in self.running if not r.is_lost and r.node == residency.node]
        clash = [
            r for r in busy if r is not residency and r.overlaps(residency.first, residency.degree)
        ]
        assert not clash, f"{residency} shares devices with {clash}"
        self.pool.take(residency, self.now)
        self.running.append(residency)
        return residency

    @rule(residency=consumes(runs))
    def end(self, residency: Residency | None) -> None:
        if residency is not None:
            self.running.remove(residency)
            self.pool.give_back(residency, self.now)

    @rule(node=st.sampled_from(NODES))
    def lose_or_join(self, node: NodeId) -> None:
        if self.pool.has_node(node):
            self.pool.lose_node(node)
        else:
            self.pool.join_node(node)

    @rule(service=names)
    def lose_service(self, service: ServiceId) -> None:
        for residency in self.pool.residents(service)[:1]:
            self.pool.lose_service(residency)

    @invariant()
    def books_balance(self) -> None:
        check_books(self.pool)

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for residency in self.running:
            self.pool.give_back(residency, self.now)
        check_books(self.pool)
        whole = Buddy(self.pool.spec.devices).blocks()
        for node in self.pool.nodes():
            assert node.buddy.blocks() == whole, "not merged although all is given back"


GpuBooks.TestCase.settings = examples(150, steps=50)
TestGpuBooks = GpuBooks.TestCase
