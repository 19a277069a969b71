"""Which cluster a verb speaks to: the service at `--url`, or one of its own while it runs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from artangram.core.errors import BadInput
from artangram.observe.journal import JournalError
from artangram.orchestrator.arguments import as_address
from artangram.orchestrator.client import Client
from artangram.orchestrator.local import local
from artangram.orchestrator.records import Refused, Unreachable
from artangram.sandbox import NotCapable, SandboxError

if TYPE_CHECKING:
    from artangram.config.cluster import ClusterFile

Url = Annotated[
    str | None, typer.Option(envvar="ARTANGRAM_URL", help="Of a service started with `up`.")
]
Token = Annotated[
    str | None, typer.Option(envvar="ARTANGRAM_TOKEN", help="The token that `up` printed.")
]


ANSWER_S = 30.0
"""A question that takes longer has no answer."""


@asynccontextmanager
async def client(
    url: str | None, token: str | None, own: "ClusterFile | None" = None
) -> AsyncIterator[Client]:
    """The cluster at `url`, or an own one. Whatever it refuses is said in one line."""
    with plainly_refused():
        async with _own(own) if url is None else _service(url, token) as one:
            yield one


def _own(spec: "ClusterFile | None") -> AbstractAsyncContextManager[Client]:
    if spec is None:
        return local()
    return local(
        policy=spec.policy,
        cores=spec.cores,
        memory_mb=spec.memory_mb,
        shares=spec.shares,
        **structs.asdict(spec.options),
    )


def _service(url: str, token: str | None) -> AbstractAsyncContextManager[Client]:
    as_address(url)  # Before anything is missed that only a right one needs.
    from artangram.orchestrator.connect import connect  # Needs an extra.

    return connect(url, token=token)


@contextmanager
def plainly_refused() -> Iterator[None]:
    """Around the use of a cluster: whatever it refuses is said in one line."""
    try:
        yield
    except Refused as error:
        problem, _, fix = str(error).partition("; ")
        raise BadInput("service", problem, fix or "see what it asks for, and try again") from None
    except Unreachable as error:
        raise BadInput("url", str(error), "or give the address that it printed") from None
    except JournalError as error:
        raise BadInput("state", str(error), "or take another directory") from None
    except NotCapable as error:
        raise BadInput("sandbox", str(error), "see `artangram doctor`") from None
    except SandboxError as error:
        raise BadInput("sandbox", str(error), "try again, or see `artangram doctor`") from None


@asynccontextmanager
async def answering(url: str) -> AsyncIterator[None]:
    """Around a question: a cluster that is there answers at once."""
    try:
        async with asyncio.timeout(ANSWER_S):
            yield
    except TimeoutError:
        problem = f"{url} has not answered for {ANSWER_S:.0f} s"
        raise BadInput("url", problem, "look at the machine, or start it again") from None


def service_url(url: str | None) -> str:
    """`url`, which a verb that asks a running service cannot do without."""
    if url is None:
        fix = "give --url or set ARTANGRAM_URL to what `artangram up` printed"
        raise BadInput("url", "no service is named", fix)
    return url
