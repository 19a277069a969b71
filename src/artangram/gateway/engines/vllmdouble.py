"""Any engine behind the HTTP interface of a vLLM server, as far as `vllm` and a chat need it.

It stands in for vLLM where that is not installed: in tests, and in `bench gateway`, where a
scripted engine must be reached by HTTP. What it does is what vLLM 0.32 was seen to do.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from artangram.core.errors import BadInput
from artangram.core.rollout.trajectory import VersionSpan
from artangram.gateway.engines.protocol import (
    BadWeights,
    Cache,
    Engine,
    EngineRequest,
    Finish,
    Handover,
    Sampling,
    TokenChunk,
)
from artangram.gateway.engines.vllmwire import (
    ErrorInfo,
    GenerateBody,
    GenerateChoice,
    GenerateEvent,
    Logprob,
    Logprobs,
    PromptDetails,
    TopLogprob,
    Usage,
    Version,
    VllmError,
    VllmGenerated,
)

CHAT_PROMPT = (1, 2, 3)
"""What every chat is to the engine: it has no tokenizer."""


def application(engine: Engine, *, model: str = "double", reply: str = "hello") -> Starlette:
    """A server like vLLM's. Chats are answered with `reply`, once the engine has sampled."""
    double = _Double(engine, model=model, reply=reply)
    return Starlette(
        routes=[
            Route("/health", double.health),
            Route("/v1/models", double.models),
            Route("/v1/chat/completions", double.chat, methods=["POST"]),
            Route("/inference/v1/generate", double.generate, methods=["POST"]),
            Route("/pause", double.pause, methods=["POST"]),
            Route("/resume", double.resume, methods=["POST"]),
            Route("/update_weight_version", double.label, methods=["POST"]),
            Route("/collective_rpc", double.reload, methods=["POST"]),
        ]
    )


class _ChatBody(msgspec.Struct):
    stream: bool | None = None
    max_tokens: int | None = None


class _Double:
    """A method per address."""

    def __init__(self, engine: Engine, *, model: str, reply: str) -> None:
        self._engine = engine
        self._model = model
        self._reply = reply
        self._labels = {engine.stats().version: "default"}
        self._numbers = count()
        self._loads = count(engine.stats().version + 1)
        """Numbers for the engine; callers only see labels."""

    async def health(self, request: HttpRequest) -> Response:
        return Response()

    async def models(self, request: HttpRequest) -> Response:
        return _json({"data": [{"id": self._model, "max_model_len": self._engine.max_context}]})

    async def pause(self, request: HttpRequest) -> Response:
        await self._engine.pause()
        return _json({"status": "paused"})

    async def resume(self, request: HttpRequest) -> Response:
        await self._engine.resume()
        return _json({"status": "resumed"})

    async def label(self, request: HttpRequest) -> Response:
        """vLLM only notes what it is told."""
        self._labels[self._engine.stats().version] = (await request.json())["new_version"]
        return _json({"success": True})

    async def reload(self, request: HttpRequest) -> Response:
        path = Path((await request.json())["kwargs"]["weights_path"])
        before, number = self._engine.stats().version, next(self._loads)
        try:
            await self._engine.load(number, path)
        except BadWeights as error:
            return _json(VllmError(ErrorInfo(str(error))), 500)
        self._labels[number] = self._labels[before]
        return _json({"results": [None]})

    async def generate(self, request: HttpRequest) -> Response:
        body = msgspec.json.decode(await request.body(), type=GenerateBody)
        params = body.sampling_params
        asked = EngineRequest(
            id=body.request_id,
            prompt=body.token_ids,
            sampling=Sampling(
                max_tokens=params.max_tokens,
                temperature=params.temperature,
                top_p=params.top_p,
                stop_ids=params.stop_token_ids,
                seed=params.seed,
                top_k=params.top_k,
                min_p=params.min_p,
                presence_penalty=params.presence_penalty,
                frequency_penalty=params.frequency_penalty,
                repetition_penalty=params.repetition_penalty,
                logit_bias=params.logit_bias,
                top_logprobs=max(0, params.logprobs - 1),
            ),
        )
        if body.kv_transfer_params and body.kv_transfer_params.get("do_remote_decode"):
            return await self._read_for_another(asked)
        events = self._events(asked, body.kv_transfer_params)
        return StreamingResponse(events, media_type="text/event-stream")

    async def _read_for_another(self, asked: EngineRequest) -> Response:
        assert isinstance(self._engine, Handover), "it has no connector"
        async with self._engine.handing(asked) as cache:
            if cache is None:
                return _json(VllmGenerated())
            version = Version(self._labels[cache.version], 0, 1)
            choice = GenerateChoice(
                token_ids=[0], finish_reason="length", weight_versions=[version]
            )
            params = {"do_remote_prefill": True, "remote": msgspec.to_builtins(cache)}
            return _json(VllmGenerated(choices=[choice], kv_transfer_params=params))

    def _stream(
        self, asked: EngineRequest, params: dict[str, Any] | None
    ) -> AsyncGenerator[TokenChunk | Finish, None]:
        if not params or not isinstance(self._engine, Handover):
            return self._engine.stream(asked)
        cache = msgspec.convert(params["remote"], Cache)
        # vLLM takes what it is told, whichever weights have read it.
        cache = msgspec.structs.replace(cache, version=self._engine.stats().version)
        return self._engine.stream(asked, cache=cache)

    async def _events(
        self, asked: EngineRequest, params: dict[str, Any] | None = None
    ) -> AsyncGenerator[bytes, None]:
        spans: list[VersionSpan] = []
        try:
            async with aclosing(self._stream(asked, params)) as items:
                async for item in items:
                    yield _event(self._choice(item, spans))
                    if isinstance(item, Finish):
                        yield _usage(asked, item)
        except BadInput as error:
            yield _event(None, ErrorInfo(str(error)))
        yield b"data: [DONE]\n\n"

    def _choice(self, item: TokenChunk | Finish, spans: list[VersionSpan]) -> GenerateChoice:
        if isinstance(item, TokenChunk):
            start = spans[-1].end if spans else 0
            spans.append(VersionSpan(item.version, start, start + len(item.token_ids)))
            content = [Logprob(one) for one in item.logprobs]
            for one, tops in zip(content, item.tops, strict=False):
                one.top_logprobs = [TopLogprob(*top) for top in tops]
            return GenerateChoice(token_ids=list(item.token_ids), logprobs=Logprobs(content))
        versions = [Version(self._labels[one.version], one.start, one.end) for one in spans]
        return GenerateChoice(finish_reason=str(item.reason), weight_versions=versions)

    async def chat(self, request: HttpRequest) -> Response:
        body = msgspec.json.decode(await request.body(), type=_ChatBody)
        number = f"chatcmpl-{next(self._numbers)}"
        sampling = Sampling(max_tokens=body.max_tokens or 16)
        asked = EngineRequest(id=number, prompt=CHAT_PROMPT, sampling=sampling)
        if body.stream:
            pieces = self._chat_events(asked)
            return StreamingResponse(pieces, media_type="text/event-stream")
        sampled = 0
        async with aclosing(self._engine.stream(asked)) as items:
            async for item in items:
                sampled += len(item.token_ids) if isinstance(item, TokenChunk) else 0
        message = {"role": "assistant", "content": self._reply}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {
            "prompt_tokens": len(CHAT_PROMPT),
            "completion_tokens": sampled,
            "total_tokens": len(CHAT_PROMPT) + sampled,
        }
        return _json({**self._head(number, "chat.completion"), "choices": [choice], "usage": usage})

    async def _chat_events(self, asked: EngineRequest) -> AsyncGenerator[bytes, None]:
        head = self._head(asked.id, "chat.completion.chunk")
        async with aclosing(self._engine.stream(asked)) as items:
            async for item in items:
                is_last = isinstance(item, Finish)
                delta = {} if is_last else {"role": "assistant", "content": self._reply}
                finish = "stop" if is_last else None
                choice = {"index": 0, "delta": delta, "finish_reason": finish}
                yield b"data: " + msgspec.json.encode({**head, "choices": [choice]}) + b"\n\n"
        yield b"data: [DONE]\n\n"

    def _head(self, number: str, kind: str) -> dict[str, Any]:
        return {"id": number, "object": kind, "created": int(time.time()), "model": self._model}


def _event(choice: GenerateChoice | None, error: ErrorInfo | None = None) -> bytes:
    event = GenerateEvent(choices=[choice] if choice is not None else [], error=error)
    return b"data: " + msgspec.json.encode(event) + b"\n\n"


def _usage(asked: EngineRequest, finish: Finish) -> bytes:
    """vLLM says nothing where nothing was found."""
    details = PromptDetails(finish.found) if finish.found else None
    usage = Usage(prompt_tokens=len(asked.prompt), prompt_tokens_details=details)
    return b"data: " + msgspec.json.encode(GenerateEvent(usage=usage)) + b"\n\n"


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
