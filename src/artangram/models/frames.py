"""The text around messages, taken from a model's chat template.

A template may do anything with a whole conversation. Our histories must grow by a suffix, so the
template does not run on the actual messages: it runs once, on placeholders, and the text that it
puts before, between and after them is the frame of each role. A role that it refuses, or merges
into another message, is framed as the user's.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.models.tokenizer import ASSISTANT, ROLES, SYSTEM, TOOL, USER

CONFIG_NAME, TEMPLATE_NAME = "tokenizer_config.json", "chat_template.jinja"
START, END = "<|im_start|>", "<|im_end|>"

Written = Callable[[Sequence[str], bool], str]
"""Messages of these roles, each a mark, as the template writes them; and whether it is to open the
model's reply. Raises `BadInput` when it refuses them."""


class ChatFrames(Struct, frozen=True, kw_only=True):
    """As texts; markers in them are control tokens."""

    begins: Mapping[str, str]
    """Before the first message of a conversation, by role."""
    headers: Mapping[str, str]
    """Before any other."""
    ends: Mapping[str, str]
    """After a message; the assistant's is the one token that ends a reply."""


def chatml() -> ChatFrames:
    """The frames of a model without a template."""
    begins = {role: f"{START}{role}\n" for role in ROLES}
    headers = {role: f"\n{begin}" for role, begin in begins.items()}
    return ChatFrames(begins=begins, headers=headers, ends=dict.fromkeys(ROLES, END))


def frames_of(directory: Path, *, first_token: Callable[[str], str]) -> ChatFrames:
    """The frames of a model's directory. `first_token` is the first token of a text, as text."""
    template, names = _template(directory)
    if template:
        return found_out(_writer(template, names), first_token)
    if first_token(START) != START:
        problem = f"is missing, and the vocabulary has no {START}"
        raise BadInput(TEMPLATE_NAME, problem, "write one that frames messages as the model knows")
    return chatml()


def found_out(written: Written, first_token: Callable[[str], str]) -> ChatFrames:
    """What a template puts around marks."""
    begin, _, after_reply, after_user = _around(written, (USER, ASSISTANT, USER), is_open=True)
    end = first_token(after_reply)
    user_end = end if after_user.startswith(end) else ""
    header, opening = after_reply.removeprefix(end), after_user.removeprefix(user_end)
    begins, headers = {USER: begin}, {USER: header, ASSISTANT: opening}
    ends = {USER: user_end, ASSISTANT: end}
    for role in (SYSTEM, TOOL):
        _, _, before, after = _asked(written, (USER, ASSISTANT, role), is_open=True)
        if before.startswith(end) and after.endswith(opening):
            headers[role], ends[role] = before.removeprefix(end), after.removesuffix(opening)
    before, between, _ = _asked(written, (SYSTEM, USER), is_open=False)
    if between.endswith(header):
        begins[SYSTEM], ends[SYSTEM] = before, between.removesuffix(header)
    return ChatFrames(
        begins={role: begins.get(role, headers.get(role, begin)) for role in ROLES},
        headers={role: headers.get(role, header) for role in ROLES},
        ends={role: ends.get(role, user_end) for role in ROLES},
    )


def _asked(written: Written, roles: Sequence[str], *, is_open: bool) -> tuple[str, ...]:
    """As `_around`; nothing anywhere if the template does not know such a conversation."""
    try:
        return _around(written, roles, is_open=is_open)
    except BadInput:
        return ("",) * (len(roles) + 1)


def _around(written: Written, roles: Sequence[str], *, is_open: bool) -> tuple[str, ...]:
    """What stands before, between and after the messages."""
    pieces, rest = [], written(roles, is_open)
    for number in range(len(roles)):
        piece, mark, rest = rest.partition(_mark(number))
        if not mark:
            problem = f"leaves out the {roles[number]}'s message of {', '.join(roles)}"
            raise BadInput("chat_template", problem, "take one that writes every message")
        pieces.append(piece)
    return (*pieces, rest)


def _mark(number: int) -> str:
    return f"said{number}here"


def _writer(template: str, names: Mapping[str, str]) -> Written:
    # A template comes with a model from anywhere: it must not reach more than its messages.
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: msgspec.json.encode(value).decode()
    environment.globals |= {
        "raise_exception": refuse,
        "strftime_now": lambda form: datetime.now(UTC).strftime(form),
    }

    def written(roles: Sequence[str], is_open: bool) -> str:
        messages = [{"role": r, "content": _mark(number)} for number, r in enumerate(roles)]
        try:
            return environment.from_string(template).render(
                messages=messages, add_generation_prompt=is_open, **names
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            fix = "take one that writes conversations of user and assistant"
            raise BadInput("chat_template", str(error), fix) from error

    return written


def _template(directory: Path) -> tuple[str, dict[str, str]]:
    """The template, or nothing, and the names of control tokens that it may use."""
    path = directory / CONFIG_NAME
    try:
        content = path.read_bytes() if path.exists() else b"{}"
        config = msgspec.json.decode(content, type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise BadInput(str(path), str(error), "save the tokenizer again") from error
    beside = directory / TEMPLATE_NAME
    found = beside.read_text() if beside.exists() else config.get("chat_template") or ""
    if isinstance(found, list):
        named = {one["name"]: one["template"] for one in found}
        found = named.get("default", "")
    tokens = {
        name: value["content"] if isinstance(value, dict) else value
        for name, value in config.items()
        if name in ("bos_token", "eos_token", "pad_token", "unk_token") and value
    }
    return found, tokens
