"""A judge behind any OpenAI-compatible endpoint: asks a chat model for a number.

`{"question": ..., "answer": ...}` (or whatever the template names) is answered by
`{"score": 0 to 1, "text": reply}`. An endpoint that cannot be reached or is busy is a failure of
infrastructure; a reply without a number is the judge's own. The payloads of a batch are asked at
the same time.
"""

import asyncio
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artangram.core.errors import BadInput, InfraFailed
from artangram.core.ids import ServiceId
from artangram.services.service import Service

if TYPE_CHECKING:
    import aiohttp

TEMPLATE = """Question: {question}
Answer: {answer}
How good is the answer, from 0 (wrong) to 10 (right)? Reply with the number only."""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def endpoint(
    name: str,
    base_url: str,
    *,
    model: str,
    batch: int = 16,
    template: str = TEMPLATE,
    most: float = 10.0,
    token_environ: str = "",
    timeout_s: float = 60.0,
) -> Service:
    """The judge as a service.

    A score of `most` is 1. `token_environ` names the variable of the environment that holds the
    key, if one is needed.
    """
    options = {
        "base_url": base_url,
        "model": model,
        "template": template,
        "most": most,
        "token_environ": token_environ,
        "timeout_s": timeout_s,
    }
    return Service(id=ServiceId(name), loader=f"{__name__}:load", options=options, batch=batch)


def load(
    files: list[Path],
    *,
    base_url: str,
    model: str,
    template: str = TEMPLATE,
    most: float = 10.0,
    token_environ: str = "",
    timeout_s: float = 60.0,
) -> "Endpoint":
    """What the replica of the service runs with; `endpoint` says what the options mean."""
    if not re.match(r"https?://[^/]+", base_url):
        raise BadInput("base_url", f"{base_url!r} is not a URL", "write it as http://host:port/v1")
    if token_environ and token_environ not in os.environ:
        raise BadInput("token_environ", f"{token_environ} is not set", "export it first")
    if most <= 0:
        raise BadInput("most", f"{most:g} is not a best score", "give a number above 0")
    token = os.environ.get(token_environ, "")
    return Endpoint(
        base_url.rstrip("/") + "/chat/completions",
        body={"model": model, "temperature": 0, "max_tokens": 16},
        headers={"authorization": f"Bearer {token}"} if token else {},
        template=template,
        most=most,
        timeout_s=timeout_s,
    )


class Endpoint:
    def __init__(
        self,
        url: str,
        *,
        body: dict[str, Any],
        headers: dict[str, str],
        template: str,
        most: float,
        timeout_s: float,
    ) -> None:
        self._url = url
        self._body = body
        self._headers = headers
        self._template = template
        self._most = most
        self._timeout_s = timeout_s

    def predict(self, payloads: list[dict[str, str]]) -> list[Any]:
        return asyncio.run(self._all(payloads))

    async def _all(self, payloads: list[dict[str, str]]) -> list[Any]:
        import aiohttp

        limit = aiohttp.ClientTimeout(total=self._timeout_s)
        async with aiohttp.ClientSession(timeout=limit, headers=self._headers) as session:
            asked = (self._one(session, payload) for payload in payloads)
            return list(await asyncio.gather(*asked, return_exceptions=True))

    async def _one(
        self, session: "aiohttp.ClientSession", payload: dict[str, str]
    ) -> dict[str, Any]:
        question = self._template.format(**payload)
        text = await self._reply(session, question)
        found = _NUMBER.search(text)
        if found is None:
            raise ValueError(f"the judge replied without a number: {text[:200]!r}")
        return {"score": min(1.0, max(0.0, float(found[0]) / self._most)), "text": text}

    async def _reply(self, session: "aiohttp.ClientSession", question: str) -> str:
        import aiohttp

        body = self._body | {"messages": [{"role": "user", "content": question}]}
        try:
            async with session.post(self._url, json=body) as response:
                if response.status == 429 or response.status >= 500:
                    raise InfraFailed(f"{self._url} answered {response.status}")
                if response.status != 200:
                    said = (await response.text())[:200]
                    raise ValueError(f"{self._url} answered {response.status}: {said}")
                return str((await response.json())["choices"][0]["message"]["content"])
        except (aiohttp.ClientError, TimeoutError) as error:
            raise InfraFailed(f"{self._url} cannot be reached: {error!r}") from error
