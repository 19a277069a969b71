"""A stateless function, named so that another process can find it.

- `module:qualname` is the name by which workers import it, so it has to be at the top of a module.
- It is pure: called twice with the same arguments it answers the same, so a call whose worker died
  is made again. `idempotent` says more: that two copies may run *at once*.
- With `url` it runs on an HTTP function platform instead: arguments by name as one JSON object,
  the answer as JSON.
"""

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.functions.encoding import packed, unpacked

P = ParamSpec("P")
R = TypeVar("R")


class FunctionSpec(Struct, frozen=True, kw_only=True):
    """What is known of a function besides its code."""

    name: str
    target: str
    """`module:qualname`."""
    idempotent: bool = False
    """Two copies of a call may run at once: a late one is hedged."""
    timeout_s: float | None = None
    memory_mb: int | None = None
    """What a call may take beside what its worker already has; no limit if unsaid."""
    url: str | None = None
    """Where a platform serves it; in our own workers if unsaid."""
    authorization: str | None = None
    """How to be let in there: `iam`, or a header as in `Bearer ${TOKEN}`; see `authorization`."""


class FunctionRunner(Protocol):
    """Runs functions somewhere."""

    async def call(
        self,
        spec: FunctionSpec,
        body: bytes,
        *,
        hedged: bool = False,
        on_begun: Callable[[], None] = lambda: None,
    ) -> bytes:
        """The encoded answer to one call.

        Raises `CallFailed` with the function's own traceback, or `InfraFailed`. `on_begun` is
        called when the function begins. Cancelling this ends the call.
        """
        ...

    async def aclose(self) -> None: ...


class Function(Generic[P, R]):
    """A function that can be called here, and sent elsewhere."""

    def __init__(self, code: Callable[P, R], spec: FunctionSpec) -> None:
        self.code = code
        self.spec = spec
        self._signature = inspect.signature(code)
        functools.update_wrapper(self, code)

    def __repr__(self) -> str:
        where = f" at {self.spec.url}" if self.spec.url else ""
        return f"<Function {self.spec.name}{where}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it here and now."""
        return self.code(*args, **kwargs)

    @property
    def name(self) -> str:
        return self.spec.name

    def encode(self, *args: P.args, **kwargs: P.kwargs) -> bytes:
        """The arguments of one call, encoded. Raises `BadInput`."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise BadInput(self.name, str(error), f"call it as {self._signature}") from None
        if self.spec.url is not None:
            return _as_json(self.name, bound.arguments)
        try:
            return packed([list(args), dict(kwargs)])
        except Exception as error:  # noqa: BLE001 - an argument's own `__reduce__` may raise anything
            fix = "pass plain data, or objects of classes at the top of a module"
            raise BadInput(self.name, f"its arguments cannot be sent: {error}", fix) from None

    def decode(self, body: bytes) -> R:
        """The answer to one call."""
        answer: R = msgspec.json.decode(body) if self.spec.url is not None else unpacked(body)
        return answer


@overload
def function(code: Callable[P, R], /) -> Function[P, R]: ...


@overload
def function(
    *,
    name: str | None = None,
    idempotent: bool = False,
    timeout_s: float | None = None,
    memory_mb: int | None = None,
    url: str | None = None,
    authorization: str | None = None,
) -> Callable[[Callable[P, R]], Function[P, R]]: ...


def function(
    code: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    idempotent: bool = False,
    timeout_s: float | None = None,
    memory_mb: int | None = None,
    url: str | None = None,
    authorization: str | None = None,
) -> Function[P, R] | Callable[[Callable[P, R]], Function[P, R]]:
    """Mark a stateless function, with or without options. Raises `BadInput` if it cannot be sent.

    `name` is `module:qualname` unless given; the rest is in `FunctionSpec`.
    """

    def mark(code: Callable[P, R]) -> Function[P, R]:
        target = _target(code)
        given = {
            "name": target if name in (None, "") else name,
            "target": target,
            "idempotent": idempotent,
            "timeout_s": timeout_s,
            "memory_mb": memory_mb,
            "url": url,
            "authorization": authorization,
        }
        spec = _spec(given)
        _check(code, spec)
        return Function(code, spec)

    return mark if code is None else mark(code)


def function_of(code: Callable[P, R]) -> Function[P, R]:
    """`code` itself if it is a `Function`, else one made of it. Raises `BadInput`."""
    if code is None:  # To `function` that means a function that comes later.
        raise _no_function(code)
    return code if isinstance(code, Function) else function(code)


def resolved(target: str) -> Callable[..., Any]:
    """What `module:qualname` names; imports its module. Raises `BadInput`."""
    module, _, qualname = target.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        fix = "put it at the top of a module that can be imported"
        raise BadInput(target, f"cannot be imported: {error}", fix) from None
    if not callable(found):
        raise BadInput(target, "is not a function", "name one as module:function")
    return found  # type: ignore[no-any-return]


def check_found(function: Function[..., Any]) -> None:
    """`BadInput` unless this very function is what a worker finds by its target."""
    target = function.spec.target
    found = resolved(target)
    if (found.code if isinstance(found, Function) else found) != function.code:
        fix = "give each its own name in the module, or import it again if it was changed"
        raise BadInput(target, "names another function than this one", fix)


def _target(code: Callable[..., Any]) -> str:
    module, name = getattr(code, "__module__", None), getattr(code, "__qualname__", None)
    if not callable(code) or not isinstance(module, str) or not isinstance(name, str):
        raise _no_function(code)
    return f"{module}:{name}"


def _no_function(code: object) -> BadInput:
    fix = "give a `def` at the top of a module"
    return BadInput("code", f"`{type(code).__name__}` is not a function", fix)


def _spec(given: dict[str, Any]) -> FunctionSpec:
    try:
        return msgspec.convert(given, FunctionSpec)
    except msgspec.ValidationError as error:
        problem, _, field = str(error).rstrip("`").rpartition(" - at `$.")
        raise BadInput(field, problem[:1].lower() + problem[1:], "give that") from None


def _check(code: Callable[..., Any], spec: FunctionSpec) -> None:
    """`BadInput` for what no other process could call."""
    if inspect.iscoroutinefunction(code) or inspect.isgeneratorfunction(code):
        fix = "make it a plain `def` that returns its answer"
        raise BadInput(spec.name, "is asynchronous or a generator", fix)
    if spec.timeout_s is not None and spec.timeout_s <= 0:
        raise BadInput(
            "timeout_s", f"{spec.timeout_s!r} is not a limit", "give more than 0 seconds"
        )
    if spec.memory_mb is not None and spec.memory_mb <= 0:
        raise BadInput("memory_mb", f"{spec.memory_mb!r} is not a limit", "give at least 1")
    if spec.url is not None:
        _check_url(code, spec.name, spec.url)
    elif spec.authorization is not None:
        raise BadInput("authorization", "is for a platform", "give its url, or leave it out")
    else:
        _check_findable(code, spec.name)


def _check_findable(code: Callable[..., Any], name: str) -> None:
    if code.__name__ == "<lambda>":
        raise BadInput(name, "a lambda has no name to find it by", "write it as a `def`")
    if "<locals>" in code.__qualname__:
        fix = "move it to the top of a module and pass what it needs as arguments"
        raise BadInput(name, "is defined inside another function", fix)
    if code.__module__ == "__main__":
        fix = "move it into a module beside the script and import it from there"
        raise BadInput(name, "is defined in the script itself, which workers do not run", fix)


def _check_url(code: Callable[..., Any], name: str, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput("url", f"{url!r} is not an HTTP address", "write https://host/path")
    for parameter in inspect.signature(code).parameters.values():
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD and (
            parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        ):
            fix = "give every parameter a name: a platform gets them as one JSON object"
            raise BadInput(name, f"parameter {parameter} has no name of its own", fix)


def _as_json(name: str, arguments: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(arguments)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        fix = "a platform takes JSON: pass numbers, text, lists and dicts"
        raise BadInput(name, f"its arguments are not JSON: {error}", fix) from None
