"""Checks arguments of callers and turns them into records.

An argument of a wrong type is refused here, by its name. Later it would fail where the command is
sent, and disturb other actions.
"""

import asyncio
import posixpath
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, structs

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, TrajectoryId
from artangram.core.scheduling.action import Action
from artangram.core.scheduling.needs import Needs, parse_needs
from artangram.managers.cpu import LONGEST_RUN_S
from artangram.orchestrator.commandkind import command_kind
from artangram.orchestrator.options import RunOptions, StartOptions
from artangram.orchestrator.records import Opening, Submission
from artangram.sandbox.network import NetworkPolicy
from artangram.sandbox.process import TerminalSize
from artangram.sandbox.protocol import MAX_READ_BYTES, Command, Snapshot
from artangram.sandbox.snapshot import SnapshotInfo
from artangram.sandbox.user import BOX

T = TypeVar("T")

_PLACE = re.compile(r"(?P<problem>.*) - at (?P<key>`key` in )?`\$\.?(?P<field>.*)`", re.DOTALL)


class FileRead(Struct, frozen=True, kw_only=True):
    """The arguments of `read`."""

    path: str
    max_bytes: Annotated[int, msgspec.Meta(ge=0)]


class FileWrite(Struct, frozen=True, kw_only=True):
    """The arguments of `write`."""

    path: str
    data: bytes


class RunRequest(Struct, frozen=True, kw_only=True):
    """A run as it is requested; times are lengths, because clocks differ."""

    trajectory: TrajectoryId
    argv: tuple[str, ...]
    kind: str
    cpu: int | dict[str, Any] = 1
    needs: dict[str, Any] = {}
    speedup: dict[str, Any] | None = None
    work_s: float | None = None
    timeout_s: float | None = None
    deadline_s: float | None = None
    priority: int = 0
    repeatable: bool = False
    key: str | None = None
    environ: dict[str, str] = {}
    cwd: str = ""
    """Empty: where its trajectory works."""
    stdin: bytes = b""
    output_bytes: int = 1 << 20
    memory_mb: int = 0
    disk_mb: int = 0
    processes: int = 0
    keep: bool = False

    def __post_init__(self) -> None:
        if self.timeout_s is self.deadline_s is self.work_s is None:
            return
        check_times(work_s=self.work_s, timeout_s=self.timeout_s, deadline_s=self.deadline_s)


class StartRequest(Struct, frozen=True, kw_only=True):
    """A process as it is requested; see `RunRequest`."""

    trajectory: TrajectoryId
    argv: tuple[str, ...]
    kind: str
    cpu: int | dict[str, Any] = 1
    priority: int = 0
    needs: dict[str, Any] = {}
    work_s: float | None = None
    timeout_s: float | None = None
    deadline_s: float | None = None
    environ: dict[str, str] = {}
    cwd: str = ""
    """Empty: where its trajectory works."""
    terminal: TerminalSize | None = None

    def as_run(self) -> RunRequest:
        """The action that it is; its command has to be made parallel. Raises `BadInput`."""
        fields = structs.asdict(self)
        del fields["terminal"]
        return RunRequest(**fields)


def as_record(kind: type[T], given: Mapping[str, Any]) -> T:
    """`given` as a `kind`. Raises `BadInput` for a value of another type than its field."""
    try:
        return msgspec.convert(given, kind, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, BadInput):
            raise error.__cause__ from None
        found = _PLACE.fullmatch(str(error))
        problem, field = (found["problem"], found["field"]) if found else (str(error), "")
        if found and found["key"]:
            problem += " as a key"
        problem = problem[:1].lower() + problem[1:]
        raise BadInput(field, problem, "give the expected type") from None
    except UnicodeEncodeError as error:
        raise _no_text(_not_text_in(given), error) from None


def run_request(opening: Opening, argv: Iterable[str], options: RunOptions) -> RunRequest:
    """The request for `argv` in a trajectory. Raises `BadInput`."""
    check_known(RunOptions, options, of="a run")
    given = _command_fields(opening, argv, dict(options))
    if isinstance(given.get("stdin"), str):
        given["stdin"] = as_bytes("stdin", given["stdin"])
    request = as_record(RunRequest, given)
    if len(request.stdin) > MAX_READ_BYTES:
        problem = f"has {len(request.stdin)} bytes, and {MAX_READ_BYTES} travel at once"
        raise BadInput("stdin", problem, "write a file and read that, or `start` and `write`")
    return request


def start_request(opening: Opening, argv: Iterable[str], options: StartOptions) -> StartRequest:
    """The same for a process. Raises `BadInput`."""
    check_known(StartOptions, options, of="a process")
    given = _command_fields(opening, argv, dict(options), prefix="start")
    match given.get("terminal"):
        case [rows, columns]:
            given["terminal"] = {"rows": rows, "columns": columns}
        case None:
            pass
        case other:
            raise BadInput("terminal", f"{other!r} is not a size", "give (rows, columns)")
    return as_record(StartRequest, given)


def _command_fields(
    opening: Opening, argv: Iterable[str], options: dict[str, Any], *, prefix: str = ""
) -> dict[str, Any]:
    """What both have in common, with defaults."""
    if isinstance(argv, str | bytes):
        fix = "give a list of words, or ['sh', '-c', ...] to have a shell read it"
        raise BadInput("argv", "is one text", fix)
    try:
        words = tuple(argv)
    except TypeError:
        problem = f"expected a list of words, got `{type(argv).__name__}`"
        raise BadInput("argv", problem, "give a list") from None
    given: dict[str, Any] = {**options, "trajectory": opening.trajectory, "argv": words}
    if not given.get("kind"):
        parts = opening.task, prefix, command_kind(words)
        given["kind"] = "/".join([name for name in parts if name])
    for name in ("needs", "environ"):
        if name in given and given[name] is None:
            del given[name]
    return given


def plain(field: str, value: Any) -> Any:
    """`value` as plain data, which `as_record` checks. Raises `BadInput` for other objects."""
    try:
        return msgspec.to_builtins(value, builtin_types=(bytes,))
    except (TypeError, RecursionError) as error:
        raise BadInput(field, str(error), "give plain data") from None


def as_text(field: str, value: object) -> str:
    """`value` itself. Raises `BadInput` if it is not a text."""
    if not isinstance(value, str):
        raise BadInput(field, f"expected `str`, got `{type(value).__name__}`", "give a text")
    return value


def as_snapshot(value: object) -> Snapshot:
    """A snapshot that is given as itself, as an entry of a list, or by its name."""
    if isinstance(value, Snapshot):
        return value
    if isinstance(value, SnapshotInfo):
        return Snapshot(name=value.name, node=value.node, provider=value.provider)
    return Snapshot(name=as_text("snapshot", value))


def as_mapping(field: str, value: object) -> Mapping[Any, Any]:
    """`value` itself, or an empty mapping for `None`. Raises `BadInput` for anything else."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problem = f"expected a mapping, got `{type(value).__name__}`"
        raise BadInput(field, problem, "give a dict")
    return value


def as_json(field: str, value: object) -> bytes:
    """`value` as JSON. Raises `BadInput` if JSON cannot express it."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        fix = "give numbers, text, lists and dicts with text as keys"
        raise BadInput(field, f"is not JSON: {error}", fix) from None


def as_bytes(field: str, text: str) -> bytes:
    """`text` as UTF-8. Raises `BadInput` for a lone surrogate, which some decoders produce."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _no_text(field, error) from None


def as_unicode(field: str, text: str) -> str:
    """`text` itself. Raises `BadInput` for a lone surrogate, which a URL would lose."""
    as_bytes(field, text)
    return text


def as_body(record: Struct) -> bytes:
    """`record` as JSON. Raises `BadInput` for a field with a lone surrogate."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError as error:
        raise _no_text(_not_text_in(structs.asdict(record)), error) from None


def as_address(url: object) -> str:
    """`url` itself. Raises `BadInput` if it is not an address of HTTP or of a Ray cluster."""
    try:
        parts = urlsplit(as_text("url", url))
        is_known = parts.scheme in ("http", "https", "ray")
        is_address = is_known and bool(parts.hostname) and parts.port != 0
    except BadInput:
        raise
    except ValueError:  # The port is not a number.
        is_address = False
    if not is_address:
        raise BadInput(
            "url", f"{url!r} is not a URL", "give the address that `artangram up` printed"
        )
    return str(url)


def check_loop(its: asyncio.AbstractEventLoop) -> None:
    """Raises `BadInput` in another event loop than `its`: a caller there would wait for ever."""
    if asyncio.get_running_loop() is not its:
        fix = "open one in this loop, or use `artangram.sync` from several threads"
        raise BadInput("client", "was opened in another event loop", fix)


def _not_text_in(given: Mapping[str, Any]) -> str:
    """The name of the first field whose text UTF-8 cannot express."""
    return next((name for name, value in given.items() if not _is_text(value)), "")


def _is_text(value: object) -> bool:
    """Can UTF-8 express all text in `value`?"""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return False
    except TypeError:  # Not plain data; that is checked elsewhere.
        pass
    return True


def _no_text(field: str, error: UnicodeEncodeError) -> BadInput:
    return BadInput(field, f"is not valid Unicode: {error}", "remove lone surrogates")


def check_times(**lengths: float | None) -> None:
    """Raises `BadInput` for a time that is not finite: JSON would turn it into null."""
    for name, length in lengths.items():
        if length is not None and not isfinite(length):
            raise BadInput(name, f"{length} is not a time", "give a number of seconds, or None")


def check_known(kind: type, given: Mapping[str, Any], *, of: str) -> None:
    """Raises `BadInput` for a name that is not a field of `kind`; `of` says of what."""
    known = kind.__annotations__
    for name in given:
        if name not in known:
            raise BadInput(name, f"is not an option of {of}", f"use: {', '.join(known)}")


def needs_of(request: RunRequest) -> Needs:
    """The needs a request states. Raises `BadInput`."""
    if isinstance(request.cpu, int) and not request.needs and request.speedup is None:
        return _rigid(request.cpu)
    if isinstance(request.cpu, int) and request.speedup is not None:
        fix = "say how many it may have, as in cpu=between(1, 8)"
        raise BadInput("speedup", f"has no effect on a run with exactly {request.cpu} cores", fix)
    if "cpu" in request.needs:
        raise BadInput("needs.cpu", "is given twice", "give it as `cpu` only")
    return parse_needs(
        {"cpu": request.cpu, **request.needs},
        elastic="cpu" if isinstance(request.cpu, dict) else None,
        speedup=request.speedup,
    )


@lru_cache(maxsize=256)
def _rigid(cpu: int) -> Needs:
    """Needs of cores alone, which most actions have."""
    return parse_needs({"cpu": cpu})


def environ_of(opening: Opening, own: dict[str, str]) -> dict[str, str]:
    """The variables of one command: its user's, its trajectory's, then its own."""
    user = opening.place.user
    if user == BOX:
        return {**opening.environ, **own} if opening.environ else own
    return {"USER": user.name, "HOME": user.home, **opening.environ, **own}


def networked(opening: Opening, policy: NetworkPolicy) -> Opening:
    """The opening with what the operator says about its network. Raises `BadInput`."""
    place = opening.place
    policy.check(place.limits.network)
    limits = structs.replace(place.limits, private=policy.private)
    return structs.replace(opening, place=structs.replace(place, limits=limits))


def inside(opening: Opening, path: str) -> str:
    """Where a path of a trajectory is: relative to where it works."""
    workdir = opening.place.user.workdir
    return posixpath.join(workdir, path) if path else workdir


def submission_of(
    request: RunRequest, opening: Opening, *, action_id: ActionId, deadline_at: float | None
) -> Submission:
    """The action that a request becomes. Raises `BadInput`."""
    action = Action(
        id=action_id,
        kind=request.kind,
        needs=needs_of(request),
        job=opening.job,
        task=opening.task,
        problem=opening.problem,
        trajectory=request.trajectory,
        work_s=request.work_s,
        timeout_s=request.timeout_s,
        deadline_at=deadline_at,
        priority=request.priority,
        repeatable=request.repeatable,
    )
    command = Command(
        argv=request.argv,
        environ=environ_of(opening, request.environ),
        cwd=inside(opening, request.cwd),
        stdin=request.stdin,
        timeout_s=LONGEST_RUN_S if request.timeout_s is None else request.timeout_s,
        output_bytes=request.output_bytes,
        memory_mb=request.memory_mb,
        disk_mb=request.disk_mb,
        processes=request.processes,
        keep=request.keep,
    )
    return Submission(action=action, command=command, key=request.key)
