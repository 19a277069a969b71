"""Requests of callers as records, with checks for fields that are not supported.

The names are those of OpenAI's interface. A field that would change the answer and that no engine
here obeys is refused, never ignored, and so is an unknown one, unless it is `null`.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, structs

from artangram.core.errors import BadInput
from artangram.gateway.engines.protocol import Sampling, refuse_unfit_shape

T = TypeVar("T", bound=Struct)

MOST_CHOICES = 128
UNLIMITED_TOKENS = 2**31 - 1
"""Of an answer, when the caller sets no limit: the context ends it."""
HARMLESS = frozenset(
    {
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
"""Ignored: they concern the user, storage, latency and price, and cannot change an answer."""


class ToolFunction(Struct, kw_only=True):
    name: str
    arguments: str = "{}"
    """JSON, as text."""


class ToolCall(Struct, kw_only=True):
    id: str = ""
    type: Literal["function"] = "function"
    function: ToolFunction


class Part(Struct, kw_only=True):
    type: str
    text: str = ""


class ChatMessage(Struct, kw_only=True, omit_defaults=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """By another name."""
    function_call: dict[str, Any] | None = None

    def text(self) -> str:
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        for part in self.content:
            if part.type != "text":
                raise BadInput("messages", f"have a part of type {part.type!r}", "send text only")
        return "".join(part.text for part in self.content)


class Tool(Struct, kw_only=True):
    type: Literal["function"] = "function"
    function: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.function.get("name"), str):
            raise ValueError("a function needs a name")


class ReplyForm(Struct, frozen=True, kw_only=True):
    """What a reply has to be, where the caller says it."""

    calls: bool = False
    """It calls a tool."""
    tool: str = ""
    """This one, or any."""
    json_schema: str = ""
    """It is JSON that follows this schema."""


class StreamOptions(Struct, kw_only=True):
    include_usage: bool | None = None


class SamplingFields(Struct, kw_only=True):
    """How to sample, under the same names in every interface."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    """0 or -1 for all tokens."""
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None

    def sampling_fields(self) -> dict[str, Any]:
        """To be passed on."""
        return {name: getattr(self, name) for name in SamplingFields.__struct_fields__}


class Asked(SamplingFields, kw_only=True):
    """What chat and plain completions have in common."""

    model: str
    max_tokens: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    """Also say which tokens the prompt and the answer were made of."""

    @property
    def choices(self) -> int:
        return 1 if self.n is None else self.n

    @property
    def stops(self) -> Sequence[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def limit(self) -> tuple[str, int | None]:
        """The field that says how many tokens an answer may have, and what it says."""
        return "max_tokens", self.max_tokens

    def most_tokens(self) -> int:
        most = self.limit()[1]
        return UNLIMITED_TOKENS if most is None else most

    def sampling(self, *, choice: int = 0, temperature: float = 1.0) -> Sampling:
        """How to answer; at `temperature` if the request names none."""
        self.refuse_what_we_cannot()
        return self._sampling(choice=choice, temperature=temperature)

    def _sampling(self, *, choice: int = 0, temperature: float = 1.0) -> Sampling:
        found = Sampling(
            max_tokens=self.most_tokens(),
            temperature=temperature,
            # Choices of one request are to differ, seed or not.
            seed=None if self.seed is None else self.seed + choice,
            top_logprobs=self.num_alternatives,
        )
        asked = {
            name: value
            for name, value in self.sampling_fields().items()
            if value is not None and name != "seed" and (name, value) != ("top_k", -1)
        }
        return structs.replace(found, **asked)

    @property
    def num_alternatives(self) -> int:
        """Tokens to tell beside each sampled one."""
        return 0

    def refuse_what_we_cannot(self) -> None:
        _between("n", self.choices, least=1, most=MOST_CHOICES)
        _between(*self.limit(), least=1, most=None)
        _between("temperature", self.temperature, least=0, most=2)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise BadInput("top_p", f"is {self.top_p}", "use more than 0 and at most 1")
        if any(not stop for stop in self.stops):
            raise BadInput("stop", "has an empty text", "leave it out")
        refuse_unfit_shape(self._sampling())


class ChatRequest(Asked, kw_only=True):
    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Tool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def template_options(self) -> dict[str, Any]:
        """Further arguments of the chat template."""
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        return {**effort, **(self.chat_template_kwargs or {})}

    @property
    def num_alternatives(self) -> int:
        return self.top_logprobs or 0

    def limit(self) -> tuple[str, int | None]:
        if self.max_completion_tokens is not None:
            return "max_completion_tokens", self.max_completion_tokens
        return super().limit()

    def refuse_what_we_cannot(self) -> None:
        super().refuse_what_we_cannot()
        if not self.messages:
            raise BadInput("messages", "is empty", "send at least one")
        if any(message.function_call for message in self.messages):
            raise BadInput("messages", "have a function_call", "send it as tool_calls")
        if self.top_logprobs and not self.logprobs:
            raise BadInput("top_logprobs", "needs logprobs", "add logprobs: true")
        self.form()
        if self.modalities not in (None, ["text"]):
            raise BadInput("modalities", "are not supported", "ask for text")

    def _sampling(self, *, choice: int = 0, temperature: float = 1.0) -> Sampling:
        found = super()._sampling(choice=choice, temperature=temperature)
        form = self.form()
        return structs.replace(found, json_schema=form.json_schema) if form else found

    def form(self) -> ReplyForm | None:
        """What the reply has to be; `None` leaves it to the model. Raises `BadInput`."""
        schema = _schema(self.response_format)
        match self.tool_choice:
            case None | "auto" | "none":
                if schema and self.offered_tools():
                    fix = "offer no tools, or ask for the form in the prompt"
                    raise BadInput("response_format", "does not go with tools here", fix)
                return ReplyForm(json_schema=schema) if schema else None
            case "required":
                name = ""
            case {"type": "function", "function": {"name": str(name)}}:
                pass
            case _:
                fix = "use auto, none, required, or name a function"
                raise BadInput("tool_choice", "is not known", fix)
        known = [tool.function["name"] for tool in self.tools or []]
        if not known or (name and name not in known):
            problem = f"{name!r} is not offered" if known else "needs tools"
            raise BadInput("tool_choice", problem, f"offer it; there are {known}")
        if schema:
            fix = "leave one of them out"
            raise BadInput("response_format", "does not go with a forced tool", fix)
        return ReplyForm(calls=True, tool=name)

    @property
    def allows_one_call(self) -> bool:
        return bool(self.offered_tools()) and self.parallel_tool_calls is False

    def offered_tools(self) -> list[Tool]:
        return [] if self.tool_choice == "none" else self.tools or []


class CompletionRequest(Asked, kw_only=True):
    prompt: str | list[int | str | list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None

    def refuse_what_we_cannot(self) -> None:
        super().refuse_what_we_cannot()
        # Of the sampled token, whether it is the likeliest or not.
        _between("logprobs", self.logprobs, least=0, most=1)
        if self.best_of not in (None, self.choices):
            raise BadInput("best_of", "is not supported", "ask for n, and choose")
        if self.echo or self.suffix:
            raise BadInput("echo" if self.echo else "suffix", "is not supported", "leave it out")

    def prompts(self) -> list[str | list[int]]:
        """Texts or tokens; a list of numbers is one prompt."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        tokens = [one for one in self.prompt if isinstance(one, int)]
        if tokens and len(tokens) == len(self.prompt):
            return [tokens]
        prompts = [one for one in self.prompt if not isinstance(one, int)]
        if not prompts or tokens:
            raise BadInput("prompt", "is not a prompt", "send a text, tokens, or a list of either")
        if len(prompts) * self.choices > MOST_CHOICES:
            problem = f"asks for {len(prompts) * self.choices} answers"
            raise BadInput(
                "prompt", problem, f"ask for {MOST_CHOICES} at most, in several requests"
            )
        return prompts


class TokenSampling(Sampling, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields that engines support."""


class GenerateRequest(Struct, kw_only=True):
    """Token in, token out: these tokens come next in the session, or are the whole prompt."""

    token_ids: list[int]
    sampling: TokenSampling
    stream: bool = False


class OpenRequest(Struct, kw_only=True):
    id: str | None = None
    """Without one it gets a new name."""
    task: str = ""


def decoded(body: bytes, record: type[T]) -> T:
    try:
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        found = msgspec.json.decode(body, type=record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("body", str(error), "see docs/gateway.md") from error
    for name in given.keys() - HARMLESS.union(record.__struct_fields__):
        if bytes(given[name]) != b"null":
            raise BadInput(name, "is not supported", "leave it out")
    return found


def _schema(form: dict[str, Any] | None) -> str:
    """As JSON; empty for text. Raises `BadInput`."""
    match form or {"type": "text"}:
        case {"type": "text"}:
            return ""
        case {"type": "json_object"}:
            return '{"type": "object"}'
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return msgspec.json.encode(schema).decode()
    fix = 'use {"type": "json_schema", "json_schema": {"schema": ...}} or json_object'
    raise BadInput("response_format", "is not known", fix)


def _between(name: str, value: float | None, *, least: float, most: float | None) -> None:
    if value is None or (value >= least and (most is None or value <= most)):
        return
    bounds = f"at least {least:g}" if most is None else f"{least:g} to {most:g}"
    raise BadInput(name, f"is {value:g}", f"use {bounds}")
