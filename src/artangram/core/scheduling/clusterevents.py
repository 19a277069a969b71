"""What happens to the cluster itself: nodes, services, APIs, and what it is configured to be.

Nothing here ends or starts an action; the scheduler does that when it decides next.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from artangram.core.ids import Resource
from artangram.core.scheduling import events
from artangram.core.scheduling.cluster import CpuSpec, GpuSpec, PoolSpec, QuotaSpec, expect_pool
from artangram.core.scheduling.forms import Forms
from artangram.core.scheduling.lanes import Lanes

Handler = Callable[[Any, float], None]


class ClusterEvents:
    """Tells lanes and forms."""

    def __init__(self, pools: Mapping[Resource, PoolSpec], forms: Forms, lanes: Lanes) -> None:
        self._pools = dict(pools)
        self._forms = forms
        self._lanes = lanes

    def handlers(self) -> dict[type, Handler]:
        return {
            events.NodeJoined: self._on_node_joined,
            events.NodeDraining: partial(self._drain, is_on=True),
            events.NodeUndrained: partial(self._drain, is_on=False),
            events.NodeSuspected: partial(self._suspect, is_on=True),
            events.NodeTrusted: partial(self._suspect, is_on=False),
            events.ImageArrived: self._on_image_arrived,
            events.ServiceDeployed: self._on_service_deployed,
            events.ServiceLost: self._on_service_lost,
            events.Throttled: self._on_throttled,
        }

    def expect(self, resource: Resource, *kinds: type) -> None:
        """`BadInput` unless `resource` is a pool of one of these kinds."""
        expect_pool(self._pools, resource, *kinds)

    def _on_node_joined(self, event: events.NodeJoined, now: float) -> None:
        self.expect(event.resource, CpuSpec, GpuSpec)
        if event.spec is not None:
            self._forms.node_joined(event.resource, event.spec.cores)
        self._lanes.node_joined(event.resource, event.node, event.spec, now)
        if event.resource in self._lanes.placement:
            self._lanes.slots.join(event.resource, event.node)

    def _drain(self, event: events.NodeEvent, now: float, *, is_on: bool) -> None:
        self.expect(event.resource, CpuSpec)
        self._lanes.cpu.drain(event.resource, event.node, now, is_on=is_on)
        self._lanes.slots.look_again()

    def _suspect(self, event: events.NodeEvent, now: float, *, is_on: bool) -> None:
        self.expect(event.resource, CpuSpec)
        self._lanes.suspect(event.resource, event.node, now, is_on=is_on)
        self._lanes.slots.look_again()

    def _on_image_arrived(self, event: events.ImageArrived, now: float) -> None:
        self.expect(event.resource, CpuSpec)
        self._lanes.cpu.image_arrived(event.resource, event.node, event.image)

    def _on_service_deployed(self, event: events.ServiceDeployed, now: float) -> None:
        self._forms.deploy(event.service, event.spec)
        self._lanes.deploy(event.service, event.spec)

    def _on_service_lost(self, event: events.ServiceLost, now: float) -> None:
        self.expect(event.resource, GpuSpec)
        self._lanes.service_lost(event)

    def _on_throttled(self, event: events.Throttled, now: float) -> None:
        self.expect(event.resource, QuotaSpec)
        self._lanes.throttled(event.resource, event.until)
