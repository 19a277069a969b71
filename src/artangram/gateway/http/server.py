"""The gateway as a service: OpenAI's interface, and tokens in and out.

- A request belongs to the session named by its address (`/sessions/ID/v1/...`) or its header; any
  OpenAI client is a trajectory that way. Without a name it is a session of its own.
- A key of `agent_keys` stands for one session by itself, under any name of the model.
- Tokens are recorded in the session, whichever interface was used.
- When a caller hangs up, or stops reading, its turn on the engine ends; an idle session is closed
  after a while.
"""

import contextlib
import secrets
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from artangram.aio import listening, served
from artangram.core.errors import BadInput
from artangram.gateway.gateway import Gateway
from artangram.gateway.http.agentkeys import AgentKeys, KeyHolder
from artangram.gateway.http.answer import (
    Head,
    ModelCard,
    ModelList,
    SessionOpened,
    SessionView,
    generated,
)
from artangram.gateway.http.anthropic import MessagesRequest, MessagesWork
from artangram.gateway.http.chat import Chat
from artangram.gateway.http.conversation import Conversation
from artangram.gateway.http.dialect import Dialect, dialect_for
from artangram.gateway.http.guard import Verb, guarded, on_defect, on_unknown_address
from artangram.gateway.http.idle import IdleSessions
from artangram.gateway.http.plain import PlainCompletion, PromptHistories, generated_events
from artangram.gateway.http.refusal import (
    too_large,
    too_many_sessions,
    unknown_model,
    unknown_session,
)
from artangram.gateway.http.responses import Remembered, ResponsesRequest, ResponsesWork
from artangram.gateway.http.sse import EventStream, unless_gone
from artangram.gateway.http.wire import (
    ChatRequest,
    CompletionRequest,
    GenerateRequest,
    OpenRequest,
    decoded,
)
from artangram.gateway.session import Session
from artangram.models.tokenizer import Tokenizer

SESSION_HEADER = "x-artangram-session"
TASK_HEADER = "x-artangram-task"
STALL_S = 60.0
"""A caller that reads nothing for this long counts as gone."""


class ServerLimits(Struct, frozen=True, kw_only=True):
    """What a caller may use."""

    opens_sessions: bool = True
    """Whether an unknown name opens a session. Not where a rollout opens and closes them: an
    agent that outlives its trajectory must not begin another."""
    most_sessions: int = 10_000
    idle_s: float = 3600.0
    """A session that a caller opened is closed after being idle for this long."""
    most_body_bytes: int = 32 * 2**20


def application(
    gateway: Gateway,
    *,
    tokenizer: Tokenizer,
    model: str,
    token: str | None,
    dialect: Dialect | None = None,
    limits: ServerLimits | None = None,
    agent_keys: AgentKeys | None = None,
) -> Starlette:
    """The service, for any ASGI server. Without a token every caller may use it."""
    agent_keys = agent_keys or AgentKeys()
    service = _GatewayRoutes(
        gateway,
        tokenizer=tokenizer,
        model=model,
        dialect=dialect or dialect_for(tokenizer),
        limits=limits or ServerLimits(),
        agent_keys=agent_keys,
    )

    def route(path: str, verb: Verb, *methods: str) -> Route:
        return Route(path, guarded(verb, token, agent_keys), methods=list(methods))

    def for_owners(path: str, verb: Verb, *methods: str) -> Route:
        return Route(path, guarded(verb, token), methods=list(methods))

    routes = []
    for prefix in ("", "/sessions/{session}"):
        routes += [
            route(f"{prefix}/v1/chat/completions", service.chat, "POST"),
            route(f"{prefix}/v1/responses", service.respond, "POST"),
            route(f"{prefix}/v1/messages", service.message, "POST"),
            route(f"{prefix}/v1/completions", service.complete, "POST"),
            route(f"{prefix}/v1/generate", service.generate, "POST"),
            route(f"{prefix}/v1/models", service.models, "GET"),
            route(f"{prefix}/v1/models/{{model:path}}", service.model, "GET"),
        ]
    routes += [
        for_owners("/sessions", service.open, "POST"),
        for_owners("/sessions/{session}", service.show, "GET"),
        for_owners("/sessions/{session}", service.close, "DELETE"),
    ]
    on_error = {HTTPException: on_unknown_address, Exception: on_defect}
    return Starlette(routes=routes, exception_handlers=on_error)


class _GatewayRoutes:
    """A method per verb."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        tokenizer: Tokenizer,
        model: str,
        dialect: Dialect,
        limits: ServerLimits,
        agent_keys: AgentKeys,
    ) -> None:
        self._gateway = gateway
        self._agent_keys = agent_keys
        self._tokenizer = tokenizer
        self._model = model
        self._dialect = dialect
        self._limits = limits
        self._began = int(time.time())
        self._answers = 0
        self._idle = IdleSessions(limits.idle_s, gateway.counters)
        # They live as long as their session.
        self._conversations: WeakKeyDictionary[Session, Conversation] = WeakKeyDictionary()
        self._responses: WeakKeyDictionary[Session, Remembered] = WeakKeyDictionary()
        self._lines: WeakKeyDictionary[Session, PromptHistories] = WeakKeyDictionary()

    async def chat(self, request: Request) -> Response:
        asked = decoded(await self._body(request), ChatRequest)
        self._refuse_other_models(asked.model, request)
        asked.refuse_what_we_cannot()

        def work(session: Session) -> Chat:
            return self._chat(session, asked, self._head("chatcmpl"))

        return await self._answered(request, work, streams=bool(asked.stream))

    async def respond(self, request: Request) -> Response:
        """OpenAI's Responses."""
        asked = decoded(await self._body(request), ResponsesRequest)
        self._refuse_other_models(asked.model, request)

        def work(session: Session) -> ResponsesWork:
            remembered = self._responses.setdefault(session, {})
            said, head = asked.chat(remembered), self._head("chatcmpl")
            said.refuse_what_we_cannot()
            chat = self._chat(session, said, head)
            return ResponsesWork(
                chat, said, id=head.id, created=head.created, remembered=remembered
            )

        return await self._answered(request, work, streams=bool(asked.stream))

    async def message(self, request: Request) -> Response:
        """Anthropic's Messages."""
        asked = decoded(await self._body(request), MessagesRequest)
        self._refuse_other_models(asked.model, request)
        said = asked.chat()
        said.refuse_what_we_cannot()

        def work(session: Session) -> MessagesWork:
            head = self._head("chatcmpl")
            return MessagesWork(self._chat(session, said, head), id=head.id, model=asked.model)

        return await self._answered(request, work, streams=bool(asked.stream))

    def _chat(self, session: Session, asked: ChatRequest, head: Head) -> Chat:
        return Chat(
            session,
            self._conversation(session),
            tokenizer=self._tokenizer,
            dialect=self._dialect,
            asked=asked,
            head=head,
        )

    async def complete(self, request: Request) -> Response:
        asked = decoded(await self._body(request), CompletionRequest)
        self._refuse_other_models(asked.model, request)
        asked.refuse_what_we_cannot()

        def work(session: Session) -> PlainCompletion:
            return PlainCompletion(
                session,
                self._plain_lines(session),
                tokenizer=self._tokenizer,
                asked=asked,
                head=self._head("cmpl"),
            )

        return await self._answered(request, work, streams=bool(asked.stream))

    async def generate(self, request: Request) -> Response:
        asked = decoded(await self._body(request), GenerateRequest)
        visit = self._visit(request)
        if asked.stream:
            return EventStream(_during(visit, lambda session: generated_events(session, asked)))

        async def whole() -> Response:
            async with visit as session:
                return _json(generated(await session.generate(asked.token_ids, asked.sampling)))

        return await unless_gone(request.receive, whole())

    async def models(self, request: Request) -> Response:
        return _json(ModelList(data=[self._the_model()]))

    async def model(self, request: Request) -> Response:
        self._refuse_other_models(request.path_params["model"], request)
        return _json(self._the_model())

    def _the_model(self) -> ModelCard:
        contexts = [replica.engine.max_context for replica in self._gateway.replicas]
        most = max(contexts, default=None)
        return ModelCard(id=self._model, created=self._began, max_model_len=most)

    async def open(self, request: Request) -> Response:
        asked = decoded(await self._body(request), OpenRequest)
        name = f"session-{secrets.token_hex(8)}" if asked.id is None else asked.id
        session = self._opened(name, asked.task)
        self._idle.add(session)
        return _json(SessionOpened(id=session.id, api_key=self._agent_keys.key_of(session)))

    async def show(self, request: Request) -> Response:
        session = self._known(request.path_params["session"])
        with self._idle.used(session):
            view = SessionView(
                id=session.id,
                task=session.task,
                oldest_version=session.oldest_version,
                lines=[line.segments for line in session.lines],
            )
            return _json(view)

    async def close(self, request: Request) -> Response:
        """Answers with the session as it was."""
        view = await self.show(request)
        await self._known(request.path_params["session"]).close()
        return view

    async def _answered(
        self,
        request: Request,
        work: "Callable[[Session], Chat | PlainCompletion | ResponsesWork | MessagesWork]",
        *,
        streams: bool,
    ) -> Response:
        visit = self._visit(request)
        if streams:
            return EventStream(_during(visit, lambda session: work(session).events()))

        async def whole() -> Response:
            async with visit as session:
                return _json(await work(session).whole())

        return await unless_gone(request.receive, whole())

    @asynccontextmanager
    async def _visit(self, request: Request) -> AsyncIterator[Session]:
        """The session of the request: one of its own ends with it."""
        if (holder := self._holder(request)) is not None:
            async with holder.turn() as session:
                with self._idle.used(session):
                    yield session
            return
        name = request.path_params.get("session") or request.headers.get(SESSION_HEADER)
        task = request.headers.get(TASK_HEADER, "")
        if name:
            if name not in self._gateway.sessions and self._limits.opens_sessions:
                self._idle.add(self._opened(name, task))
            session = self._known(name)
            with self._idle.used(session):
                yield session
            return
        session = self._opened(f"request-{self._answers}-{secrets.token_hex(4)}", task)
        try:
            yield session
        finally:
            await session.close()

    def _holder(self, request: Request) -> KeyHolder | None:
        return self._agent_keys.of(request.headers)

    def _opened(self, name: str, task: str) -> Session:
        if len(self._gateway.sessions) >= self._limits.most_sessions:
            raise too_many_sessions(self._limits.most_sessions)
        if not name or "/" in name:
            raise BadInput("id", f"{name!r} cannot be part of a URL", "use a name without slashes")
        return self._gateway.open(name, task=task, tokenizer=self._tokenizer)

    def _known(self, name: str) -> Session:
        if name not in self._gateway.sessions:
            raise unknown_session(name)
        return self._gateway.sessions[name]

    def _conversation(self, session: Session) -> Conversation:
        if session not in self._conversations:
            self._conversations[session] = Conversation(session, self._tokenizer)
        return self._conversations[session]

    def _plain_lines(self, session: Session) -> PromptHistories:
        if session not in self._lines:
            self._lines[session] = PromptHistories(session, self._tokenizer)
        return self._lines[session]

    def _head(self, kind: str) -> Head:
        self._answers += 1
        number = f"{kind}-{self._answers}-{secrets.token_hex(6)}"
        return Head(id=number, created=int(time.time()), model=self._model)

    def _refuse_other_models(self, model: str, request: Request) -> None:
        # An agent has one model, whatever name its code has for it.
        if model != self._model and self._holder(request) is None:
            raise unknown_model(model, self._model)

    async def _body(self, request: Request) -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._limits.most_body_bytes:
                raise too_large(self._limits.most_body_bytes)
        return bytes(body)


async def _during(
    visit: "contextlib.AbstractAsyncContextManager[Session]",
    events_of: Callable[[Session], AsyncGenerator[bytes, None]],
) -> AsyncGenerator[bytes, None]:
    async with visit as session, aclosing(events_of(session)) as events:
        async for one in events:
            yield one


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


@asynccontextmanager
async def serving(
    app: Starlette, *, host: str = "127.0.0.1", port: int = 0, stall_s: float = STALL_S
) -> AsyncIterator[str]:
    """Serve while the block lasts; gives the address.

    The kernel closes connections whose peer reads nothing for `stall_s`.
    """
    with listening(host, port) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(stall_s * 1000))
        async with served(app, listener) as url:
            yield url
