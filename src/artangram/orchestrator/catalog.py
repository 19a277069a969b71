"""What can be called in a cluster, and what each call needs."""

from collections.abc import Mapping

from artangram.core.errors import BadInput
from artangram.core.ids import Resource, ServiceId
from artangram.core.scheduling.cluster import ClusterSpec, FunctionsSpec, QuotaSpec, ServiceSpec
from artangram.core.scheduling.needs import Needs, parse_needs
from artangram.managers.call import ApiCall, FunctionCall, ServiceCall
from artangram.orchestrator.calling import CallRequest


class Catalog:
    """The services, functions and APIs of one cluster."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._pools = cluster.pools
        self.services: dict[ServiceId, ServiceSpec] = dict(cluster.services)
        #: Where functions run, by name; others run in the first pool of functions.
        self.slots: dict[str, Resource] = {}

    def __repr__(self) -> str:
        return f"<Catalog: {len(self.services)} services>"

    def needs(self, request: CallRequest) -> Needs:
        """What a call needs, its own wishes included. Raises `BadInput` for the unknown."""
        match request.call:
            case ServiceCall(service=service):
                return self._of_service(service, request.needs)
            case FunctionCall(function=name):
                slots = self.slots.get(name) or self._first(FunctionsSpec, "functions")
                return parse_needs({slots: 1, **request.needs})
            case ApiCall(api=api):
                self._check_api(api)
                return parse_needs({api: 1, **request.needs})

    def _of_service(self, service: ServiceId, wishes: Mapping[str, object]) -> Needs:
        spec = self.services.get(service)
        if spec is None:
            known = ", ".join(sorted(self.services)) or "none yet"
            raise BadInput("service", f"{service!r} is not deployed", f"deploy it; known: {known}")
        degrees = sorted(spec.degrees)
        return parse_needs(
            {spec.pool: {"choices": degrees}, **wishes},
            elastic=spec.pool if len(degrees) > 1 else None,
            service=service,
        )

    def _first(self, kind: type, what: str) -> Resource:
        found = [name for name, pool in self._pools.items() if isinstance(pool, kind)]
        if not found:
            raise BadInput("call", f"this cluster has no {what}", f"open it with {what}")
        return found[0]

    def _check_api(self, api: Resource) -> None:
        if isinstance(self._pools.get(api), QuotaSpec):
            return
        known = [name for name, pool in self._pools.items() if isinstance(pool, QuotaSpec)]
        fix = (
            f"use one of: {', '.join(sorted(known))}" if known else "open the cluster with `apis=`"
        )
        raise BadInput("api", f"{api!r} is not an API of this cluster", fix)
