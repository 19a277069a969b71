"""Makes leases of function slots real: a worker of ours, or a platform behind a URL.

- Only registered functions can be called: a name is all a call brings, and it names one function.
- A slot is one worker process. What the scheduler books and what runs agree: see `functions.local`.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from artangram.core.errors import BadInput, CallFailed, InfraFailed
from artangram.core.ids import NodeId
from artangram.core.scheduling.lease import HEAD, FunctionSlots, Lease
from artangram.functions.authorization import check_authorization
from artangram.functions.encoding import is_pickled
from artangram.functions.function import Function, FunctionRunner, check_found, function_of
from artangram.functions.local import LocalFunctions
from artangram.managers.agent import NodeAgent
from artangram.managers.call import Call, CallResult, FunctionCall
from artangram.managers.calls import CallProgress


class FunctionsManager:
    """See `calls.Carrier`; for `FunctionCall`."""

    def __init__(self, *, ceiling: int, idle_s: float = 60.0, accepts_pickles: bool = True) -> None:
        """`accepts_pickles`: whether callers may send more than plain data. Not over a network."""
        self.functions: dict[str, Function[..., Any]] = {}
        self.local = LocalFunctions(ceiling=ceiling, idle_s=idle_s)
        self._accepts_pickles = accepts_pickles
        self._platform: FunctionRunner | None = None
        self.nodes: Mapping[NodeId, NodeAgent] = {}
        """Where leases may have slots, beside this machine."""

    def __repr__(self) -> str:
        return f"<FunctionsManager: {len(self.functions)} functions, {self.local!r}>"

    def register(self, code: Callable[..., Any]) -> Function[..., Any]:
        """From now on `code` can be called by its name; the same again changes nothing.

        Raises `BadInput` if it cannot be sent, or if its name is another function's.
        """
        found = function_of(code)
        known = self.functions.get(found.name)
        if known is not None and known.spec != found.spec:
            problem = f"is {known.spec.target} here already, or has other options there"
            fix = "give one of them another name: `@artangram.function(name=...)`"
            raise BadInput(found.name, problem, fix)
        if found.spec.url is None:
            check_found(found)
            self.local.expect(found.spec)
        else:
            check_authorization(found.spec, os.environ)
        self.functions[found.name] = found
        return found

    async def carry_out(self, lease: Lease, call: Call, *, progress: CallProgress) -> CallResult:
        assert isinstance(call, FunctionCall)
        found = self.functions.get(call.function)
        if found is None:
            known = ", ".join(sorted(self.functions)) or "none"
            raise CallFailed(f"no function {call.function!r} is registered; there are: {known}")
        if is_pickled(call.body) and not self._accepts_pickles:
            raise CallFailed(f"{found.name}: this cluster accepts only plain data; send no objects")
        runner = self._runner(lease) if found.spec.url is None else self._http()
        body = await runner.call(found.spec, call.body, hedged=call.hedged, on_begun=progress.began)
        return CallResult(body=body)

    def _runner(self, lease: Lease) -> FunctionRunner:
        node = next((a.node for a in lease.allocations if isinstance(a, FunctionSlots)), HEAD)
        if node == HEAD:
            return self.local
        agent = self.nodes.get(node)
        if agent is None or agent.functions is None:
            raise InfraFailed(f"{node} was lost, or has no function slots")
        return agent.functions

    async def aclose(self) -> None:
        await self.local.aclose()
        if self._platform is not None:
            await self._platform.aclose()

    def _http(self) -> FunctionRunner:
        if self._platform is None:
            # Not above: only calls of a platform need an HTTP client.
            from artangram.functions.platform import HttpFunctions

            self._platform = HttpFunctions()
        return self._platform
