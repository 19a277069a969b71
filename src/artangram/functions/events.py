"""CloudEvents over HTTP, for functions that Knative's eventing calls: arguments in, an answer out.

- In binary mode the body is the data, and headers `ce-*` describe it; in structured mode the body
  is the event, with its data inside. Either way the data are the arguments of a function.
- An event is answered by an event in the same mode: a broker takes nothing else for an answer. Its
  type is another one, or a trigger would bring it back to the function; its id is the same, so
  that an event delivered twice has one answer.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct, structs

JSON_TYPE = "application/json"
STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
ANSWERED = ".answered"
"""What the type of an answer ends with."""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event in structured mode, as far as we look at it."""

    id: str
    source: str
    type: str
    specversion: str
    datacontenttype: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")
    data_base64: bytes | None = None

    def arguments(self) -> bytes:
        return bytes(self.data) if self.data_base64 is None else self.data_base64


def opened(headers: Mapping[str, str], body: bytes) -> tuple[Event | None, bytes]:
    """The event of a request, if it brings one, and the arguments. Raises `msgspec.DecodeError`.

    `headers` have lower-case names.
    """
    kind = media_type(headers)
    if kind == BATCHED:
        raise msgspec.DecodeError("a batch of events is more than one call; send them one by one")
    if kind == STRUCTURED:
        event = msgspec.json.decode(body, type=Event)
        return event, event.arguments()
    if "ce-specversion" not in headers:
        return None, body
    event = Event(
        id=headers.get("ce-id", ""),
        source=headers.get("ce-source", ""),
        type=headers.get("ce-type", ""),
        specversion=headers["ce-specversion"],
    )
    return event, body


def answer_to(
    event: Event, answer: bytes, *, source: str, structured: bool
) -> tuple[dict[str, str], bytes]:
    """The headers and the body of an event that answers `event`; `answer` is JSON."""
    reply = structs.replace(
        event,
        source=source,
        type=event.type + ANSWERED,
        datacontenttype=JSON_TYPE,
        data=msgspec.Raw(answer),
        data_base64=None,
    )
    if structured:
        return {"content-type": STRUCTURED}, msgspec.json.encode(reply)
    headers = {
        "content-type": JSON_TYPE,
        "ce-specversion": reply.specversion,
        "ce-id": reply.id,
        "ce-source": reply.source,
        "ce-type": reply.type,
    }
    return headers, answer


def media_type(headers: Mapping[str, str]) -> str:
    """What a body is, without parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()
