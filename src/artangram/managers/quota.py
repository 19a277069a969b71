"""Makes leases of an API's quota real: one HTTP request for one lease.

What the API says of its limits goes to the scheduler, by `on_throttled`: the pool closes, and calls
wait in the one queue instead of here.
"""

import os
import random
from collections.abc import Callable, Mapping
from functools import partial

from artangram.apis.client import ApiClient, ApiRequest
from artangram.apis.spec import ApiSpec, checked
from artangram.core.errors import CallFailed
from artangram.core.ids import Resource
from artangram.core.scheduling.lease import Calls, Lease
from artangram.managers.call import ApiCall, Call, CallResult
from artangram.managers.calls import CallProgress

OnThrottled = Callable[[Resource, float], None]
"""An API takes no call before this time, on the clock of `now`."""


class QuotaManager:
    """See `calls.Carrier`; for `ApiCall`."""

    def __init__(
        self,
        apis: Mapping[Resource, ApiSpec],
        *,
        now: Callable[[], float],
        on_throttled: OnThrottled,
        environ: Mapping[str, str] = os.environ,
        rng: random.Random | None = None,
    ) -> None:
        """Raises `BadInput` for an API that could never be called."""
        rng = rng or random.Random()
        self.clients = {
            name: ApiClient(
                checked(name, spec, environ),
                now=now,
                on_throttled=partial(on_throttled, name),
                environ=environ,
                rng=rng,
            )
            for name, spec in apis.items()
        }

    def __repr__(self) -> str:
        return f"<QuotaManager: {', '.join(sorted(self.clients)) or 'no API'}>"

    async def carry_out(self, lease: Lease, call: Call, *, progress: CallProgress) -> CallResult:
        assert isinstance(call, ApiCall)
        client = self.clients.get(call.api)
        if client is None:
            known = ", ".join(sorted(self.clients)) or "none"
            raise CallFailed(f"{call.api!r} is not an API of this cluster; there are: {known}")
        answer = await client.call(
            ApiRequest(call.method, call.path, call.params, call.headers, call.body),
            units=_units(lease, call.api),
            attempt=lease.attempt,
            on_begun=progress.began,
        )
        return CallResult(body=answer.body, status=answer.status, headers=answer.headers)

    async def aclose(self) -> None:
        for client in self.clients.values():
            await client.aclose()


def _units(lease: Lease, api: Resource) -> int:
    """How many calls of the API's quota the lease is worth."""
    ours = [a.units for a in lease.allocations if isinstance(a, Calls) and a.resource == api]
    return sum(ours) or 1
