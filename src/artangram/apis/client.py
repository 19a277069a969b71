"""Makes calls to one outside API: one request for one lease.

- A request is sent once. What may be tried again goes back as `InfraFailed`, and the scheduler
  starts it anew, because another request is another call against the window.
- A refusal (see `limits.is_refusal`) is `TurnedAway`, a subclass of it, and closes the pool for as
  long as the API said. Failures in a row do the same: see `breaker`.
- An answer of the API that is no success is `CallFailed`; there is no empty result.
- Secrets are in the request and nowhere else.
"""

import asyncio
import os
import random
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import NamedTuple
from urllib.parse import unquote

import aiohttp

from artangram.apis.breaker import Breaker, Way
from artangram.apis.gate import Gates, JointPassage
from artangram.apis.limits import TurnedAway, exhausted_s, is_refusal, retry_after_s
from artangram.apis.spec import ApiSpec, filled, secrets_of
from artangram.core.errors import CallFailed, InfraFailed

BACK_OFF_S, MOST_BACK_OFF_S = 0.2, 2.0
"""Before the second attempt, and before any: the pool's own rest is for longer trouble."""
CONNECT_S = 10.0
OF_OURS = frozenset({401, 402, 407, 408, 425})
"""Statuses that say something of us or the moment, not of what was asked."""
MOST_QUOTINGS = 8
"""How often the same part of a path may be quoted, one time over the other."""
SHOWN_BYTES = 300
"""Of an answer, in an error."""


class ApiRequest(NamedTuple):
    """What to ask."""

    method: str
    path: str = ""
    params: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""

    def __repr__(self) -> str:
        return f"{self.method} /{self.path.lstrip('/')}"


class ApiResponse(NamedTuple):
    """What was answered; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class ApiClient:
    """The one caller of an API."""

    def __init__(
        self,
        spec: ApiSpec,
        *,
        now: Callable[[], float],
        on_throttled: Callable[[float], None],
        environ: Mapping[str, str] = os.environ,
        rng: random.Random | None = None,
    ) -> None:
        """`on_throttled` gets the time until which the API takes no call, on the clock of `now`."""
        self.spec = spec
        self._now = now
        self._on_throttled = on_throttled
        self._environ = environ
        self._rng = rng or random.Random()
        self.gates = Gates(spec.gates(), now=now)
        self.breaker = Breaker(
            patience=spec.patience,
            rest_s=spec.rest_s,
            most_rest_s=spec.most_rest_s,
            rng=self._rng,
        )
        self._probed = asyncio.Event()
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"<ApiClient {self.spec.base_url}: {self.gates!r}, {self.breaker!r}>"

    async def call(
        self,
        request: ApiRequest,
        *,
        units: int = 1,
        attempt: int = 1,
        on_begun: Callable[[], None] = lambda: None,
    ) -> ApiResponse:
        """The answer to one request. Raises `CallFailed`, `InfraFailed` or `TurnedAway`."""
        if _climbs(request.path):
            raise CallFailed(f"{request!r}: leaves {self.spec.base_url}; name a path below it")
        # A call that was only turned away comes back into a pool that has rested already.
        if attempt > 1 and self.breaker.is_failing:
            await asyncio.sleep(self._back_off_s(attempt))
        await self._enter(request)
        try:
            passage = await self.gates.passage(units)
            on_begun()
            answer = await self._sent(request, passage)
            self._learn(request, answer)
        except BaseException:
            self.breaker.forget_probe()
            raise
        finally:
            self._probed.set()
        return self._checked(request, answer)

    def reconfigure(self, spec: ApiSpec) -> None:
        """The API has other limits now; the rest of `spec` is as before."""
        self.spec = spec
        self.gates.reconfigure(spec.gates())

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _back_off_s(self, attempt: int) -> float:
        longest_s = min(MOST_BACK_OFF_S, BACK_OFF_S * 2.0 ** min(attempt - 2, 10))
        return longest_s * self._rng.uniform(0.5, 1.0)

    async def _enter(self, request: ApiRequest) -> None:
        """Return when the call may go ahead; `TurnedAway` while the API is left alone."""
        while (way := self.breaker.way(self._now())) is Way.WAIT:
            self._probed.clear()
            await self._probed.wait()
        if way is Way.SHUT:
            raise self._turned_away(request, "is left alone")

    async def _sent(self, request: ApiRequest, passage: JointPassage) -> ApiResponse:
        try:
            return await self._exchange(request, passage)
        except ValueError as error:
            raise CallFailed(f"{request!r}: cannot be sent: {error}") from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._on_failure()
            what = self._redacted(str(error)) or type(error).__name__
            raise InfraFailed(f"{request!r}: no answer: {what}") from None
        finally:
            passage.sent()

    async def _exchange(self, request: ApiRequest, passage: JointPassage) -> ApiResponse:
        spec = self.spec
        async with self._open_session().request(
            request.method,
            f"{spec.base_url.rstrip('/')}/{request.path.lstrip('/')}".rstrip("/"),
            params={**request.params, **filled(spec.params, self._environ)},
            headers={**request.headers, **filled(spec.headers, self._environ)},
            data=request.body or None,
            # Following one would be another call, and would show our secrets to another place.
            allow_redirects=False,
            trace_request_ctx=passage,
        ) as response:
            passage.answered()
            body = await response.content.read(spec.answer_bytes + 1)
            while len(body) <= spec.answer_bytes and not response.content.at_eof():
                body += await response.content.read(spec.answer_bytes + 1 - len(body))
            headers = {name.lower(): value for name, value in response.headers.items()}
            return ApiResponse(response.status, headers, body)

    def _learn(self, request: ApiRequest, answer: ApiResponse) -> None:
        """What an answer says of the API's health and limits; raises if it is no answer."""
        now = self._now()
        if is_refusal(answer.status, answer.headers):
            until = self.breaker.refused(now, retry_after_s(answer.headers, now))
            self._on_throttled(until)
            raise self._turned_away(request, f"answered {answer.status}")
        if answer.status >= 500 or answer.status in OF_OURS:
            self._on_failure()
            raise InfraFailed(f"{request!r}: {self._shown(answer)}")
        self.breaker.succeeded()
        rest_s = exhausted_s(answer.headers, now)
        # By our own count there is room, by the API's there is not: another client uses it, too.
        if rest_s and self.gates.has_room():
            self._on_throttled(now + rest_s)

    def _checked(self, request: ApiRequest, answer: ApiResponse) -> ApiResponse:
        if answer.status >= 300:
            raise CallFailed(f"{request!r}: {self._shown(answer)}")
        if len(answer.body) > self.spec.answer_bytes:
            most = self.spec.answer_bytes
            raise CallFailed(f"{request!r}: more than {most} bytes; ask for less (answer_bytes)")
        return answer

    def _on_failure(self) -> None:
        until = self.breaker.failed(self._now())
        if until is not None:
            self._on_throttled(until)

    def _turned_away(self, request: ApiRequest, why: str) -> TurnedAway:
        wait_s = max(0.0, (self.breaker.shut_until or 0.0) - self._now())
        return TurnedAway(f"{request!r}: the API {why}; next try in {wait_s:.1f} s")

    def _shown(self, answer: ApiResponse) -> str:
        text = answer.body[:SHOWN_BYTES].decode(errors="replace")
        where = f" to {answer.headers['location']}" if "location" in answer.headers else ""
        return self._redacted(f"answered {answer.status}{where}: {text}")

    def _redacted(self, text: str) -> str:
        for name in secrets_of(self.spec):
            text = text.replace(self._environ[name], f"${{{name}}}")
        return text

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_request_headers_sent.append(_on_headers_sent)
            self._session = aiohttp.ClientSession(
                # How many calls are under way is the scheduler's affair.
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=CONNECT_S, sock_read=self.spec.silence_s
                ),
                trace_configs=[trace],
            )
        return self._session


async def _on_headers_sent(
    session: aiohttp.ClientSession,
    context: SimpleNamespace,
    parameters: aiohttp.TraceRequestHeadersSentParams,
) -> None:
    passage: JointPassage = context.trace_request_ctx
    passage.sent()


def _climbs(path: str) -> bool:
    """Would it lead above the address that secrets are sent to, however it is written?"""
    path = path.partition("?")[0].partition("#")[0]
    for _ in range(MOST_QUOTINGS):
        if (plain := unquote(path)) == path:
            return ".." in path.replace("\\", "/").split("/")
        path = plain
    return True  # No caller means that, and going on would block the event loop.
