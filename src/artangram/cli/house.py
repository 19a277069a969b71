"""Which house a verb speaks to: the service at `--url`, or one of its own while it runs."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Annotated

import typer

from artangram.core.errors import BadInput
from artangram.observe.journal import JournalError
from artangram.orchestrator.client import House
from artangram.orchestrator.local import local
from artangram.orchestrator.records import Refused
from artangram.sandbox import NotCapable

Url = Annotated[
    str | None, typer.Option(envvar="ARTANGRAM_URL", help="Of a service started with `up`.")
]
Token = Annotated[
    str | None, typer.Option(envvar="ARTANGRAM_TOKEN", help="The token that `up` printed.")
]


@asynccontextmanager
async def house(url: str | None, token: str | None) -> AsyncIterator[House]:
    """The house at `url`, or an own one. Whatever it refuses is said in one line."""
    with plainly_refused(url):
        async with local() if url is None else _service(url, token) as one:
            yield one


def _service(url: str, token: str | None) -> AbstractAsyncContextManager[House]:
    if not url.startswith(("http://", "https://")):
        raise BadInput("url", f"{url!r} is none", "give what `artangram up` printed")
    from artangram.orchestrator.connect import connect  # Needs an extra.

    return connect(url, token=token)


@contextmanager
def plainly_refused(url: str | None) -> Iterator[None]:
    """Around the use of a house: whatever it refuses is said in one line."""
    try:
        yield
    except Refused as error:
        raise BadInput("service", str(error), "give what it asks for and try again") from None
    except _of_connections() as error:
        raise BadInput("url", f"{url}: {error}", "start it with `artangram up`") from None
    except JournalError as error:
        raise BadInput("state", str(error), "or take another directory") from None
    except NotCapable as error:
        raise BadInput("sandbox", str(error), "see `artangram doctor`") from None


def _of_connections() -> tuple[type[Exception], ...]:
    """What connections raise; where the package for them was not needed, there were none."""
    aiohttp = sys.modules.get("aiohttp")
    return () if aiohttp is None else (aiohttp.ClientError,)


def service_url(url: str | None) -> str:
    """`url`, which a verb that asks a running service cannot do without."""
    if url is None:
        fix = "give --url or set ARTANGRAM_URL to what `artangram up` printed"
        raise BadInput("url", "no service is named", fix)
    return url
