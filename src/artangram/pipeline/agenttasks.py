"""Tasks of agents as a run's file describes them: `{agent: "module:solve", problems: x.jsonl}`, or
`{command: [program, "{prompt}"], problems: x.jsonl, reward: "module:score"}`."""

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from artangram.core.errors import BadInput
from artangram.envs.agents import MOST_TURNS, AgentTask, Solve
from artangram.envs.commands import command_agent
from artangram.pipeline.imported import imported

_FIX = "write it as module:name, importable from the directory of the file"
_OF_COMMANDS = ("image", "shows", "sandbox")
_OWN_OPTIONS = {"network", "source", "id", "job", "task", "problem"}


class AgentSpec(Struct, frozen=True, kw_only=True):
    """One task of agents."""

    agent: str = ""
    """`module:name` of the function that makes an attempt: `solve(problem, llm, client)`."""
    command: tuple[str, ...] = ()
    """In place of a function: what runs in a sandbox; `{field}` is a field of the problem."""
    image: str = ""
    """Of that sandbox: a directory or a tar file; `{field}` works here, too."""
    shows: tuple[str, ...] = ()
    """Without an image: directories of the node that it shows beside its programs."""
    cpu: int = 1
    """Cores that the command holds while it runs."""
    sandbox: dict[str, Any] = {}
    """Further options of the sandbox, as `client.trajectory` takes them: `{memory_mb: 2048}`."""
    problems: str = ""
    """A file with a JSON object in each line; or `module:name` of a function that gives rows for a
    seed."""
    reward: str = ""
    """`module:name` of `score(problem, answer)`; without it the agent returns the reward."""
    max_turns: int = 0
    """Requests that one attempt may make; 0 sets no limit."""
    max_tokens: int = 0
    """Of one answer; 0 leaves it to the agent and the context."""
    sampling: str = "agent"
    """`agent`: as its requests say; `run`: at the run's temperature, from all tokens."""

    def __post_init__(self) -> None:
        if self.sampling not in ("agent", "run"):
            raise BadInput("sampling", f"{self.sampling!r} is not known", "say agent or run")
        self._check_command()
        for field in ("max_turns", "max_tokens"):
            if getattr(self, field) < 0:
                raise BadInput(field, f"{getattr(self, field)} is negative", "say 0 or more")

    def _check_command(self) -> None:
        if self.agent and self.command:
            raise BadInput("command", "does not go with `agent`", "leave one of them out")
        if self.command and not self.reward:
            fix = 'add reward: "module:score", called with the problem and what the command left'
            raise BadInput("reward", "is missing: a command returns no number", fix)
        if not self.command:
            for field in _OF_COMMANDS:
                if getattr(self, field):
                    fix = "add `command`, or open the sandbox in the agent"
                    raise BadInput(field, "belongs to a command", fix)
        if self.image and self.shows:
            raise BadInput("shows", "does not go with `image`", "leave one of them out")
        if self.cpu < 1:
            raise BadInput("cpu", f"{self.cpu} is too few", "say 1 or more")
        if taken := sorted(_OWN_OPTIONS & self.sandbox.keys()):
            fix = "leave it out: the run sets it, and only the model is reached"
            raise BadInput("sandbox", f"may not say {taken[0]!r}", fix)


def agent_task(name: str, spec: AgentSpec, client: Any, *, job: str) -> AgentTask:
    """The task; its module and its problems are read. Raises `BadInput`."""
    return AgentTask(
        name,
        problems=_problems(spec.problems),
        solve=_solve(spec),
        score=imported(spec.reward, field="reward", fix=_FIX) if spec.reward else None,
        client=client,
        job=job,
        max_turns=spec.max_turns or MOST_TURNS,
        max_tokens=spec.max_tokens,
        samples_as_run=spec.sampling == "run",
    )


def _solve(spec: AgentSpec) -> Solve:
    if not spec.command:
        found: Solve = imported(spec.agent, field="agent", fix=_FIX)
        return found
    return command_agent(
        spec.command, image=spec.image, shows=spec.shows, cpu=spec.cpu, sandbox=spec.sandbox
    )


def _problems(said: str) -> Callable[[int], Iterable[dict[str, Any]]]:
    if not said:
        raise BadInput("problems", "is missing", "name a file with a JSON object in each line")
    if ":" in said and not Path(said).exists():
        drawn: Callable[[int], Iterable[dict[str, Any]]] = imported(
            said, field="problems", fix=_FIX
        )
        return drawn
    rows = _read(Path(said))

    def shuffled(seed: int) -> Iterator[dict[str, Any]]:
        order = list(range(len(rows)))
        random.Random(seed).shuffle(order)
        return ({"id": number, **rows[number]} for number in order)

    return shuffled


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        fix = "name a file with a JSON object in each line, from the directory of the run's file"
        raise BadInput("problems", f"{path}: {error.strerror}", fix) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append(msgspec.json.decode(line, type=dict[str, Any]))
        except msgspec.MsgspecError as error:
            fix = "write a JSON object in each line"
            raise BadInput("problems", f"{path}:{number}: {error}", fix) from error
    if not rows:
        raise BadInput("problems", f"{path} is empty", "write at least one problem")
    return rows
