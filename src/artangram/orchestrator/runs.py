"""Runs as a caller asks for them: what is said of one, and the action that it becomes."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId, TrajectoryId
from artangram.core.scheduling.action import Action
from artangram.core.scheduling.needs import Needs, parse_needs
from artangram.managers.cpu import LONGEST_RUN_S
from artangram.orchestrator.arguments import as_bytes, as_record, check_times
from artangram.orchestrator.commandkind import command_kind
from artangram.orchestrator.options import RunOptions, check_options
from artangram.orchestrator.records import Opening, Submission
from artangram.sandbox.protocol import WORK_DIR, Command


class RunRequest(Struct, frozen=True, kw_only=True):
    """What a caller says of an action; times are lengths, for clocks differ."""

    trajectory: TrajectoryId
    argv: tuple[str, ...]
    kind: str
    cpu: int | dict[str, Any] = 1
    needs: dict[str, Any] = {}
    speedup: dict[str, Any] | None = None
    work_s: float | None = None
    timeout_s: float | None = None
    deadline_s: float | None = None
    repeatable: bool = False
    key: str | None = None
    environ: dict[str, str] = {}
    cwd: str = WORK_DIR
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


def run_request(opening: Opening, argv: Iterable[str], options: RunOptions) -> RunRequest:
    """The request for `argv` in a trajectory. Raises `BadInput`."""
    if isinstance(argv, str | bytes):
        fix = "give a list of words, or ['sh', '-c', ...] to have a shell read it"
        raise BadInput("argv", "is one text", fix)
    try:
        words = tuple(argv)
    except TypeError:
        problem = f"expected a list of words, got `{type(argv).__name__}`"
        raise BadInput("argv", problem, "give one") from None
    check_options(RunOptions, options, of="a run")
    given: dict[str, Any] = {**options, "trajectory": opening.trajectory, "argv": words}
    if not given.get("kind"):
        runs = command_kind(words)
        given["kind"] = "/".join([name for name in (opening.task, runs) if name])
    for name in ("needs", "environ"):
        if name in given and given[name] is None:
            del given[name]
    if isinstance(given.get("stdin"), str):
        given["stdin"] = as_bytes("stdin", given["stdin"])
    return as_record(RunRequest, given)


def needs_of(request: RunRequest) -> Needs:
    """The needs a request states. Raises `BadInput`."""
    if isinstance(request.cpu, int) and not request.needs and request.speedup is None:
        return _rigid(request.cpu)
    if isinstance(request.cpu, int) and request.speedup is not None:
        fix = "say how many it may have, as in cpu=between(1, 8)"
        raise BadInput("speedup", f"has no effect on a run with exactly {request.cpu} cores", fix)
    if "cpu" in request.needs:
        raise BadInput("needs.cpu", "is said twice", "say it as `cpu` alone")
    return parse_needs(
        {"cpu": request.cpu, **request.needs},
        elastic="cpu" if isinstance(request.cpu, dict) else None,
        speedup=request.speedup,
    )


@lru_cache(maxsize=256)
def _rigid(cpu: int) -> Needs:
    """Most actions need so many cores and nothing else."""
    return parse_needs({"cpu": cpu})


def submission_of(
    request: RunRequest, opening: Opening, *, action_id: ActionId, deadline_at: float | None
) -> Submission:
    """The action a request asks for. Raises `BadInput`."""
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
        repeatable=request.repeatable,
    )
    command = Command(
        argv=request.argv,
        environ=request.environ,
        cwd=request.cwd,
        stdin=request.stdin,
        timeout_s=LONGEST_RUN_S if request.timeout_s is None else request.timeout_s,
        output_bytes=request.output_bytes,
        memory_mb=request.memory_mb,
        disk_mb=request.disk_mb,
        processes=request.processes,
        keep=request.keep,
    )
    if command.has_own_limits:
        opening.place.limits.admit(command)
    return Submission(action=action, command=command, key=request.key)
