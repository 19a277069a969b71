"""Which cluster a verb speaks to: the service at `--url`, or one of its own while it runs."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from artangram.config.providers import providers_of
from artangram.core.errors import BadInput
from artangram.observe.journal import JournalError
from artangram.orchestrator.arguments import as_address
from artangram.orchestrator.client import Client
from artangram.orchestrator.local import local
from artangram.orchestrator.records import Refused, Unreachable
from artangram.sandbox import IsolationLevel, NotCapable, SandboxError, SandboxProvider

if TYPE_CHECKING:
    from artangram.config.cluster import ClusterFile

Url = Annotated[
    str | None,
    typer.Option(envvar="ARTANGRAM_URL", help="Address of a service that `artangram up` started."),
]
Token = Annotated[
    str | None,
    typer.Option(envvar="ARTANGRAM_TOKEN", help="The token that `artangram up` printed."),
]


_ADDRESS = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]+):(?P<port>\d{1,5})")

ANSWER_S = 30.0
"""How long a verb waits for the answer of a service."""


@asynccontextmanager
async def client(
    url: str | None, token: str | None, own: "ClusterFile | None" = None
) -> AsyncIterator[Client]:
    """The service at `url`, or a cluster that lasts as long as the block."""
    with plainly_refused():
        async with _own(own) if url is None else _service(url, token) as one:
            yield one


@asynccontextmanager
async def _own(spec: "ClusterFile | None") -> AsyncIterator[Client]:
    if spec is None:
        async with local() as one:
            yield one
        return
    providers: Sequence[SandboxProvider] = ()
    names = providers_of(spec.provider)
    if names != ("strongest",):
        from artangram.managers.agentprocess import providers_named  # Takes a while.

        providers = await providers_named(names, lowest=IsolationLevel.NAMESPACES, keep_for="")
    async with local(
        provider=providers or None,
        policy=spec.policy,
        cores=spec.cores,
        memory_mb=spec.memory_mb,
        shares=spec.shares,
        limits=spec.limits,
        **structs.asdict(spec.options),
    ) as one:
        yield one


def _service(url: str, token: str | None) -> AbstractAsyncContextManager[Client]:
    as_address(url)  # A wrong address is reported before a missing package.
    from artangram.orchestrator.connect import connect  # Needs an extra.

    return connect(url, token=token)


@contextmanager
def plainly_refused() -> Iterator[None]:
    """Around the use of a cluster: turns what it refuses into one line for the user."""
    try:
        yield
    except Refused as error:
        problem, _, fix = str(error).partition("; ")
        raise BadInput("service", problem, fix or "try again later") from None
    except Unreachable as error:
        raise BadInput("url", str(error), "or give the address that it printed") from None
    except JournalError as error:
        raise BadInput("state", str(error), "or use another directory") from None
    except NotCapable as error:
        raise BadInput("sandbox", str(error), "see `artangram doctor`") from None
    except SandboxError as error:
        raise BadInput("sandbox", str(error), "try again, or see `artangram doctor`") from None


@asynccontextmanager
async def answering(url: str) -> AsyncIterator[None]:
    """Around a request: a service that runs answers at once."""
    try:
        async with asyncio.timeout(ANSWER_S):
            yield
    except TimeoutError:
        problem = f"{url} has not answered for {ANSWER_S:.0f} s"
        raise BadInput("url", problem, "check the machine, or restart the service") from None


def service_url(url: str | None) -> str:
    """`url`. Raises `BadInput` without one."""
    if url is None:
        fix = "give --url or set ARTANGRAM_URL to what `artangram up` printed"
        raise BadInput("url", "is missing", fix)
    return url


def host_and_port(option: str, text: str) -> tuple[str, int]:
    """HOST:PORT of an option; an IPv6 address stands in brackets. Raises `BadInput`."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise BadInput(option, f"{text!r} is not HOST:PORT", "write it as 10.0.0.1:7411")
    return found["host"].strip("[]"), int(found["port"])
