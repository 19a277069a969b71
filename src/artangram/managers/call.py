"""Calls as records: of a model service, a function, an outside API. What they answer, too."""

from msgspec import Struct

from artangram.core.ids import Resource, ServiceId


class ServiceCall(Struct, frozen=True, kw_only=True, tag="service"):
    """Ask a model service; `body` is JSON."""

    service: ServiceId
    body: bytes


class FunctionCall(Struct, frozen=True, kw_only=True, tag="function"):
    """Call a registered function; `body` is as its own encoding has it."""

    function: str
    body: bytes
    hedged: bool = False
    """May run twice at once: the first answer wins."""


class ApiCall(Struct, frozen=True, kw_only=True, tag="api"):
    """One HTTP request to an outside API."""

    api: Resource
    method: str = "GET"
    path: str = ""
    params: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: bytes = b""


Call = ServiceCall | FunctionCall | ApiCall


class CallResult(Struct, frozen=True, kw_only=True):
    """What a call answered."""

    body: bytes
    status: int = 0
    """The HTTP status of an API's answer; 0 for services and functions."""
    headers: dict[str, str] = {}
