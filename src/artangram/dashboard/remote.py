"""What pages show of a cluster that is behind a URL.

A service gives its view to holders of its token. A run that uses it shows that view beside its own
curves; the service's token stays in this process.
"""

from http import HTTPStatus
from urllib.parse import quote

import aiohttp
import msgspec

from artangram.core.ids import ActionId
from artangram.dashboard.source import Answered, problem_answer

PATIENCE_S = 10.0


class RemoteCluster:
    """A service at a URL, asked through `session`, which has its token."""

    def __init__(self, session: aiohttp.ClientSession, path: str, *, run: str) -> None:
        self._session = session
        self._path = path
        self._run = run

    async def view(self) -> Answered:
        body, status = await self._asked("view.json")
        if status is not HTTPStatus.OK:
            return body, status
        parts = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        parts["run"] = msgspec.Raw(msgspec.json.encode(self._run))
        return msgspec.json.encode(parts), status

    async def action(self, action_id: ActionId) -> Answered:
        return await self._asked(f"actions/{quote(action_id, safe='')}")

    async def _asked(self, what: str) -> Answered:
        limit = aiohttp.ClientTimeout(total=PATIENCE_S)
        try:
            address = f"{self._path}/{what}"
            async with self._session.get(address, timeout=limit) as answer:
                if answer.content_type == "application/json":
                    return await answer.read(), HTTPStatus(answer.status)
                problem = f"the service answers {answer.status}"
        except (aiohttp.ClientError, TimeoutError) as error:
            problem = f"the service does not answer: {error}"
        return problem_answer(problem, HTTPStatus.BAD_GATEWAY)
