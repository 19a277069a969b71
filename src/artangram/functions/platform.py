"""Runs functions on an HTTP platform: Knative, OpenFaaS, a Lambda URL, `serve` of our own.

- One POST with the arguments by name as a JSON object; the answer is the body of a 2xx, as JSON.
- Functions are pure, so what failed on the way is tried again, with back-off and jitter and not
  before the platform wants it (`Retry-After`); after `ATTEMPTS` it is `InfraFailed`. The caller's
  own limits end it earlier by cancelling.
- A 4xx is the function's own failure, and so is an answer that a platform marks as one. Not so
  where access was denied, no function was found or its runtime died: that is `InfraFailed` at once,
  and so is a redirect, which would turn a POST into a GET, and a 202, which promises an answer
  elsewhere.
"""

import asyncio
import os
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from artangram.core.errors import CallFailed, InfraFailed
from artangram.functions.authorization import authorization_headers
from artangram.functions.events import JSON_TYPE, STRUCTURED, Event, media_type
from artangram.functions.function import FunctionSpec

ATTEMPTS = 5
BACK_OFF_S, MOST_BACK_OFF_S = 0.2, 10.0
MOST_RETRY_AFTER_S = 60.0
"""A platform that wants more patience has failed; the scheduler may try again later."""
CONNECT_S = 10.0
SHOWN_CHARS = 2000
LATER = frozenset({408, 425, 429})
"""The 4xx that say nothing of the function."""
NOT_REACHED = frozenset({301, 302, 303, 307, 308, 401, 402, 403, 404, 405, 407})
"""The function was never asked, and asking again changes nothing."""
QUEUED = 202
ERROR_MARK = "x-amz-function-error"
"""Lambda's header for a function that raised."""
OF_LAMBDA = ("Runtime.", "Sandbox.", "Extension.")
"""How errors of Lambda itself are named."""
UNREADABLE = "Runtime.MarshalError"
"""But this is an answer that is no JSON."""
CALL_IDS = ("x-call-id", "x-amzn-requestid", "x-request-id")
"""By which OpenFaaS, Lambda and Knative's ingress know a call in their logs."""


class _LambdaError(Struct, frozen=True, rename="camel"):
    """What Lambda answers for a function that raised."""

    error_type: str = ""


class _Trouble(Exception):
    """The platform could not run it; worth another try."""

    def __init__(self, reason: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class HttpFunctions:
    """See `function.FunctionRunner`."""

    def __init__(
        self, *, rng: random.Random | None = None, environ: Mapping[str, str] = os.environ
    ) -> None:
        """Secrets that functions name are in `environ`."""
        self._rng = rng or random.Random()
        self._environ = environ
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self,
        spec: FunctionSpec,
        body: bytes,
        *,
        hedged: bool = False,
        on_begun: Callable[[], None] = lambda: None,
    ) -> bytes:
        """See `Runner.call`. A platform scales and hedges by itself: `hedged` changes nothing."""
        on_begun()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._post(spec, body)
            except _Trouble as trouble:
                if attempt == ATTEMPTS or trouble.retry_after_s > MOST_RETRY_AFTER_S:
                    raise InfraFailed(f"{spec.name}: {trouble}") from None
                await asyncio.sleep(max(trouble.retry_after_s, self._back_off_s(attempt)))
        raise AssertionError("the last attempt ends it")

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _post(self, spec: FunctionSpec, body: bytes) -> bytes:
        assert spec.url is not None
        url = URL(spec.url)
        headers = {
            "content-type": JSON_TYPE,
            "accept": JSON_TYPE,
            **authorization_headers(
                spec, str(url), body, environ=self._environ, at=datetime.now(UTC)
            ),
        }
        try:
            async with self._open_session().post(
                url, data=body, headers=headers, allow_redirects=False
            ) as response:
                answer = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _Trouble(f"no answer: {error or type(error).__name__}") from None
        return _checked(spec, response, answer)

    def _back_off_s(self, attempt: int) -> float:
        longest_s = min(MOST_BACK_OFF_S, BACK_OFF_S * 2.0 ** (attempt - 1))
        return longest_s * self._rng.uniform(0.5, 1.0)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # How many calls are under way is the scheduler's affair.
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            )
        return self._session


def _checked(spec: FunctionSpec, response: aiohttp.ClientResponse, answer: bytes) -> bytes:
    """The answer, or what it says went wrong."""
    status, headers = response.status, response.headers
    text = answer[:SHOWN_CHARS].decode(errors="replace")
    said = f"answered {status}{_call_id(headers)}: {text}"
    if status in NOT_REACHED or status == QUEUED:
        raise InfraFailed(f"{spec.name}: {spec.url} {said}{_advice(response)}")
    if ERROR_MARK in headers and _is_platforms(answer):
        raise InfraFailed(f"{spec.name}: {spec.url} {said}")
    is_its_own = 400 <= status < 500 and status not in LATER
    if is_its_own or ERROR_MARK in headers:
        raise CallFailed(f"{spec.name} {said}")
    if not 200 <= status < 300:
        wait_s = _seconds(headers.get("retry-after", ""))
        raise _Trouble(f"{spec.url} {said}", retry_after_s=wait_s)
    try:
        if media_type(headers) == STRUCTURED:
            answer = msgspec.json.decode(answer, type=Event).arguments()
        msgspec.json.decode(answer)
    except msgspec.DecodeError as error:
        raise CallFailed(f"{spec.name} did not answer with JSON: {error}: {text[:200]}") from None
    return answer


def _is_platforms(answer: bytes) -> bool:
    """Is a failure that Lambda marks as the function's one of the runtime around it?

    Then the function was not found, or died: `Runtime.ExitError`, `Sandbox.Timedout`. What it
    raised itself has the name of its class.
    """
    try:
        named = msgspec.json.decode(answer, type=_LambdaError).error_type
    except msgspec.DecodeError:
        return False
    return named.startswith(OF_LAMBDA) and named != UNREADABLE


def _call_id(headers: Mapping[str, str]) -> str:
    """What to look for in the platform's logs."""
    return next((f" to {name} {headers[name]}" for name in CALL_IDS if name in headers), "")


def _advice(response: aiohttp.ClientResponse) -> str:
    if response.status == QUEUED:
        return " (it queued the call; use the address that answers, /function/NAME of OpenFaaS)"
    if 300 <= response.status < 400:
        return f" (use the address it names: {response.headers.get('location')})"
    return " (see that its address is right and that it lets this machine in)"


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0  # Absent, or a date: our own back-off is wait enough.
