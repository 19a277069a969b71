"""Runs functions on an HTTP platform: Knative, OpenFaaS, a Lambda URL, `serve` of our own.

- One POST with the arguments by name as a JSON object; the answer is the body of a 2xx, as JSON.
- Functions are pure, so what failed on the way is tried again, with back-off and jitter and not
  before the platform wants it (`Retry-After`); after `ATTEMPTS` it is `InfraFailed`. The caller's
  own limits end it earlier by cancelling.
- A 4xx is the function's own failure, and so is an answer that a platform marks as one. Not so
  where nobody let us in or no function was there: that is `InfraFailed` at once, and so is a
  redirect, which would turn a POST into a GET, and a 202, which promises an answer elsewhere.
"""

import asyncio
import random
from collections.abc import Callable, Mapping

import aiohttp
import msgspec

from artangram.core.errors import CallFailed, InfraFailed
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
CALL_IDS = ("x-call-id", "x-amzn-requestid", "x-request-id")
"""By which OpenFaaS, Lambda and Knative's ingress know a call in their logs."""


class _Trouble(Exception):
    """The platform could not run it; worth another try."""

    def __init__(self, reason: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class HttpFunctions:
    """See `runner.Runner`."""

    def __init__(self, *, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
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
        headers = {"content-type": "application/json", "accept": "application/json"}
        try:
            async with self._open_session().post(
                spec.url, data=body, headers=headers, allow_redirects=False
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
    is_its_own = 400 <= status < 500 and status not in LATER
    if is_its_own or ERROR_MARK in headers:
        raise CallFailed(f"{spec.name} {said}")
    if not 200 <= status < 300:
        wait_s = _seconds(headers.get("retry-after", ""))
        raise _Trouble(f"{spec.url} {said}", retry_after_s=wait_s)
    try:
        msgspec.json.decode(answer)
    except msgspec.DecodeError as error:
        raise CallFailed(f"{spec.name} answered no JSON: {error}: {text[:200]}") from None
    return answer


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
