"""A vLLM server as an engine, over HTTP: one that we start, or one at a URL.

- The server must have vLLM's endpoints for reinforcement learning (`VLLM_SERVER_DEV_MODE=1`) and
  for tokens (`--enable-scale-out`), and no other client may change its weights.
- When weights change during a request, vLLM reports only at its end which version sampled which
  tokens. Until then the tokens after the change are held back, so no token ever has a wrong
  version; tokens before the change are streamed at once.
- Weights are refused before vLLM sees them if they are not the same tensors. When vLLM fails to
  load them the ones before are loaded again; an engine that cannot do that is gone.
- On CPUs a server of models with tied embeddings must have been started with our extension, and
  `reload` must name its method; see `inside.artangram_vllm`. A server we start has it.
- Servers with a KV connector (`cache_kind` names it) exchange caches. vLLM does not check versions,
  so we do; and it cannot pause while another server still has to fetch a cache, so pausing is
  retried until that is done or its claim has expired.
- Logprobs are those of the server's `--logprobs-mode`; a server we start uses
  `processed_logprobs`, which are cut by `top_p`, `top_k` and `min_p`.
- Penalties of an answer that comes from another replica count only what this one sampled.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import msgspec

from artangram.aio import uncancelled
from artangram.core.errors import BadInput
from artangram.core.rollout.trajectory import VersionSpan
from artangram.gateway.engines.flights import FlightBooks
from artangram.gateway.engines.protocol import (
    BadWeights,
    Cache,
    EngineGone,
    EngineRequest,
    Finish,
    FinishReason,
    TokenChunk,
)
from artangram.gateway.engines.vllmflight import VllmFlight
from artangram.gateway.engines.vllmwire import (
    Events,
    GenerateChoice,
    Shapes,
    Usages,
    VllmError,
    VllmModels,
    body_of,
    cache_in,
    handle_for,
    reading_of,
    shapes_in,
    spans_of,
    vocab_in,
)

BEAT_S = 5.0
"""Between health checks: a dead server must not hold turns for long."""
VERB_S = 60.0
"""A call that takes longer has failed."""
LOAD_S = 600.0
LEASE_S = 30
"""vLLM keeps a cache for another server for this long, then reuses its memory; we pass the value,
which is also vLLM's default. A later fetch gets other data without an error."""
KEPT_S = LEASE_S * 2 / 3
"""After that we do not try: the fetching server must have renewed the lease before its end."""
CLAIM_S = 60.0
"""After this, a server that has not fetched a cache has lost its claim to it."""
_CLAIM_LOOK_S = 0.5
KEEP_S = 2.0
"""An idle connection is kept this long: vLLM hangs up after five seconds."""

_BROKEN = (aiohttp.ClientError, OSError, TimeoutError)


class VllmEngine(FlightBooks[VllmFlight]):
    """See `protocol.Engine` and `protocol.Handover`. Made by `connect`."""

    lacks: tuple[str, ...] = ()

    def __init__(self, url: str, *, name: str, version: int, max_context: int) -> None:
        super().__init__(name=name, max_context=max_context, version=version)
        self.cache_kind = ""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_S)
        # No time limit: a request may be paused for any length of time.
        self._http = aiohttp.ClientSession(
            url, connector=connector, timeout=aiohttp.ClientTimeout()
        )
        self._verbs = _session_for_verbs(url)
        self._directory: Path | None = None
        self._shapes: Shapes | None = None
        self._reload_method = "reload_weights"
        self._usages = Usages()
        self._draining: set[asyncio.Task[None]] = set()
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        name: str = "vllm",
        version: int = 0,
        directory: Path | None = None,
        reload: str = "reload_weights",
        cache_kind: str = "",
    ) -> "VllmEngine":
        """Use the server at `url`, whose weights are those in `directory`, as `version`.

        `cache_kind` names the server's KV connector, if it has one.
        """
        shapes = None if directory is None else await asyncio.to_thread(shapes_in, directory)
        try:
            async with _session_for_verbs(url) as http:
                async with http.get("/v1/models") as response:
                    models = msgspec.json.decode(await response.read(), type=VllmModels)
                label = {"new_version": str(version)}
                async with http.post("/update_weight_version", json=label) as response:
                    response.raise_for_status()
        except (*_BROKEN, msgspec.MsgspecError) as error:
            raise EngineGone(f"{name}: {url} does not answer as vLLM does: {error}") from error
        context = models.data[0].max_model_len
        engine = cls(url, name=name, version=version, max_context=context)
        engine._directory, engine._shapes, engine._reload_method = directory, shapes, reload
        engine._vocab_size = None if directory is None else vocab_in(directory)
        engine.cache_kind = cache_kind
        return engine

    async def stream(
        self, request: EngineRequest, *, cache: Cache | None = None
    ) -> AsyncGenerator[TokenChunk | Finish, None]:
        now = asyncio.get_running_loop().time()
        handle = handle_for(request, cache, version=self._version, now=now)
        flight = VllmFlight(self._version, handle=handle)
        self._board(request, flight)
        flight.reading = asyncio.create_task(self._read(request, flight, self._read_once))
        try:
            while True:
                item = await flight.items.get()
                assert not isinstance(item, Cache)
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, Finish) and item.reason is not FinishReason.ABORT:
                    self._drain(flight)
                yield item
                if isinstance(item, Finish):
                    return
        finally:
            del self._flights[request.id]
            # Hanging up is what aborts a request that vLLM still works on.
            if flight.reading not in self._draining:
                await uncancelled(_ended(flight.reading))

    @asynccontextmanager
    async def handing(self, request: EngineRequest) -> AsyncIterator[Cache | None]:
        flight = VllmFlight(self._version)
        self._board(request, flight)
        flight.reading = asyncio.create_task(self._read(request, flight, self._read_ahead))
        try:
            item = await flight.items.get()
        finally:
            del self._flights[request.id]
            await uncancelled(_ended(flight.reading))
        if isinstance(item, Exception):
            raise item
        yield item if isinstance(item, Cache) else None

    async def abort(self, request_id: str) -> None:
        self._raise_if_gone()
        if (flight := self._flights.get(request_id)) is not None:
            flight.items.put_nowait(Finish(FinishReason.ABORT))

    async def pause(self) -> None:
        loop = asyncio.get_running_loop()
        lapsed_at = loop.time() + CLAIM_S
        # Also forgets what was read: it would be wrong under other weights.
        how = {"mode": "keep", "clear_cache": "true"}
        while not self._is_paused:
            try:
                await self._verb("/pause", params=how)
                self._is_paused = True
            except BadInput:
                if not self.cache_kind or loop.time() >= lapsed_at:
                    raise
                await self._verb("/resume")
                await asyncio.sleep(_CLAIM_LOOK_S)

    async def resume(self) -> None:
        for flight in self._flights.values():
            if flight.handle is not None and not flight.has_begun:
                # Fetched under other weights, or not yet: while it stands still a server does not
                # renew its lease.
                flight.items.put_nowait(Finish(FinishReason.ABORT))
        await self._verb("/resume")
        self._is_paused = False

    async def load(self, version: int, path: Path) -> None:
        self._raise_if_gone()
        shapes = await asyncio.to_thread(shapes_in, path)
        if self._shapes is not None and shapes != self._shapes:
            raise BadWeights(f"{self.name}: {path} holds other tensors than the model has")
        was_paused = self._is_paused
        if not was_paused:
            await self.pause()  # vLLM dies of weights that change under a running request.
        try:
            await self._swap(version, path)
            self._directory, self._shapes = path, shapes
        finally:
            if not was_paused and not self._gone:
                await self.resume()

    async def aclose(self) -> None:
        self.crash("it was closed")
        for task in (self._watching, *self._draining):
            await _ended(task)
        await self._http.close()
        await self._verbs.close()

    def crash(self, reason: str) -> None:
        """The caller knows that the server is gone: every stream ends."""
        if not self._gone:
            self._gone = reason
            for flight in self._flights.values():
                flight.items.put_nowait(EngineGone(f"{self.name}: {reason}"))

    def _drain(self, flight: VllmFlight) -> None:
        """The answer is there; when its response has been read, the connection can be kept."""
        assert flight.reading is not None
        if not flight.reading.done():
            self._draining.add(flight.reading)
            flight.reading.add_done_callback(self._draining.discard)

    async def _swap(self, version: int, path: Path) -> None:
        if (problem := await self._reload(path)) is not None:
            if self._directory is None or await self._reload(self._directory) is not None:
                self.crash(f"{path} could not be loaded, nor the weights before")
            raise BadWeights(f"{self.name}: version {version} from {path}: {problem}")
        await self._verb("/update_weight_version", json={"new_version": str(version)})
        self._version = version
        for flight in self._flights.values():
            flight.is_holding = True

    async def _reload(self, path: Path) -> str | None:
        """What was wrong, if anything was."""
        order = {"method": self._reload_method, "kwargs": {"weights_path": str(path)}}
        try:
            await self._verb("/collective_rpc", json=order, within_s=LOAD_S)
        except BadInput as error:
            return str(error)
        return None

    async def _verb(
        self,
        path: str,
        *,
        json: object = None,
        params: dict[str, str] | None = None,
        within_s: float = VERB_S,
    ) -> None:
        """Tell the server. Raises `BadInput` with its words if it refuses."""
        self._raise_if_gone()
        try:
            limit = aiohttp.ClientTimeout(total=within_s)
            async with self._verbs.post(path, json=json, params=params, timeout=limit) as response:
                said = await response.text()
        except _BROKEN as error:
            self.crash(f"{path}: {error!r}")
        self._raise_if_gone()
        if response.status != 200:
            raise BadInput(path, f"answered {response.status}: {said[:500]}", "see vLLM's log")

    async def _read(
        self,
        request: EngineRequest,
        flight: VllmFlight,
        read_once: Callable[[EngineRequest, VllmFlight], Awaitable[None]],
    ) -> None:
        """Fill the flight's queue. What goes wrong is the last thing in it."""
        try:
            try:
                await read_once(request, flight)
            except aiohttp.ClientError as error:
                is_unseen = isinstance(error, aiohttp.ServerDisconnectedError)
                if flight.has_begun or not (is_unseen or flight.handle):
                    raise
                # The server was just closing a kept connection, and never saw the request; or it
                # could not fetch what another has read, and has to read it itself.
                if not is_unseen:
                    flight.handle = None
                await read_once(request, flight)
        except _BROKEN as error:
            await self._on_broken(flight, error)
        except (msgspec.MsgspecError, ValueError) as error:
            self.crash(f"no vLLM we know answers so: {error}")

    async def _read_once(self, request: EngineRequest, flight: VllmFlight) -> None:
        async with self._generate(body_of(request, handle=flight.handle)) as response:
            if response.status != 200:
                flight.items.put_nowait(_refusal(await response.read()))
                return
            events = Events()
            async for data in response.content.iter_any():
                for event in events.fed(data):
                    if event.error is not None:
                        raise aiohttp.ClientError(event.error.message)
                    for choice in event.choices:
                        self._on_choice(choice, request, flight)
                    if event.usage is not None:
                        flight.end(self._usages.found(event.usage))
            flight.end(None)  # A server that says nothing of its cache.

    async def _read_ahead(self, request: EngineRequest, flight: VllmFlight) -> None:
        async with self._generate(reading_of(request)) as response:
            body = await response.read()
        if response.status != 200:
            flight.items.put_nowait(_refusal(body))
            return
        self._prompt_tokens += len(request.prompt)
        until = asyncio.get_running_loop().time() + KEPT_S
        cache = cache_in(body, request, version=flight.version, until=until)
        flight.items.put_nowait(cache or Finish(FinishReason.ABORT))

    def _generate(self, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers = {"content-type": "application/json"}
        return self._http.post("/inference/v1/generate", data=body, headers=headers)

    def _on_choice(
        self, choice: GenerateChoice, request: EngineRequest, flight: VllmFlight
    ) -> None:
        token_ids = choice.token_ids or []
        content = (choice.logprobs.content if choice.logprobs else None) or []
        logprobs = [one.logprob for one in content]
        wanted = request.sampling.top_logprobs
        tops = tuple(one.tops(wanted) for one in content) if wanted else ()
        self._sampled_tokens += len(token_ids)
        if token_ids and not flight.has_begun:
            flight.has_begun = True
            taken = 0 if flight.handle is None else len(request.prompt) - 1
            self._taken_tokens += taken
            self._prompt_tokens += len(request.prompt) - taken
        flight.hear(TokenChunk(tuple(token_ids), tuple(logprobs), flight.version, tops))
        if choice.finish_reason is not None:
            self._on_end(choice, flight)

    def _on_end(self, choice: GenerateChoice, flight: VllmFlight) -> None:
        spans = [VersionSpan(flight.version, 0, flight.given + len(flight.held.token_ids))]
        if choice.weight_versions is not None:
            spans = spans_of(choice.weight_versions)
        if any(span.version != flight.version for span in spans if span.start < flight.given):
            self.crash("another client changed its weights")
            return
        flight.give_held(spans)
        flight.reason = FinishReason(choice.finish_reason or "stop")

    async def _on_broken(self, flight: VllmFlight, error: Exception) -> None:
        """A connection ended. If the server is well, only this request has to go on elsewhere."""
        if await self._is_well():
            flight.items.put_nowait(Finish(FinishReason.ABORT))
        else:
            self.crash(f"{error!r}")

    async def _watch(self) -> None:
        while not self._gone:
            await asyncio.sleep(BEAT_S)
            if not await self._is_well():
                self.crash("it is not healthy")

    async def _is_well(self) -> bool:
        limit = aiohttp.ClientTimeout(total=VERB_S)
        with suppress(*_BROKEN):
            async with self._verbs.get("/health", timeout=limit) as response:
                return response.status == 200
        return False


def _session_for_verbs(url: str) -> aiohttp.ClientSession:
    """A connection for each: a server may close a kept one just as it is used."""
    return aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(force_close=True))


def _refusal(body: bytes) -> Exception:
    try:
        error = msgspec.json.decode(body, type=VllmError).error
    except msgspec.MsgspecError:
        error = None
    said = error.message if error is not None else body[:500].decode(errors="replace")
    return BadInput("request", said, "see vLLM's log")


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})
