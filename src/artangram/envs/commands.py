"""A command as an agent: it runs in a sandbox of its own, from which only the model is reached.

Its arguments are those of the run's file, with `{field}` for a field of the problem. It finds the
model by the variables that the clients of OpenAI and Anthropic read.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from artangram.core.errors import BadInput, InfraFailed
from artangram.envs.agents import Solve
from artangram.envs.protocol import ModelAccess
from artangram.sandbox.protocol import DirectoryImage, HostImage, Image, TarImage

_FIELD = re.compile(r"\{(\w+)\}")
_LAST_CHARACTERS = 500


class CommandAnswer(Struct, frozen=True, kw_only=True):
    """What `score(problem, answer)` gets of a command."""

    exit_code: int
    stdout: str
    stderr: str
    sandbox: Any
    """The trajectory that it ran in, still open: run the tests in it."""


def command_agent(
    command: Sequence[str],
    *,
    image: str = "",
    shows: Sequence[str] = (),
    cpu: int = 1,
    sandbox: Mapping[str, Any] | None = None,
) -> Solve:
    """An agent that runs `command`; see the module.

    - `image`: a directory or a tar file; without it the programs of the node, and `shows`.
    - `sandbox`: further keywords of `client.trajectory`.
    """

    async def solve(problem: dict[str, Any], llm: ModelAccess, client: Any) -> CommandAnswer:
        if not llm.sandbox_url:
            fix = "add `gateway: HOST:PORT` to the run, and HOST:PORT to `network.private` there"
            raise BadInput("command", "sandboxes of this cluster do not reach the model", fix)
        argv = [filled(word, problem) for word in command]
        place = client.trajectory(
            network=[llm.sandbox_host],
            source=_image(filled(image, problem), shows),
            **(sandbox or {}),
        )
        await place.open()
        kind = f"agent/{Path(command[0]).name}"
        done = await place.run(argv, cpu=cpu, kind=kind, environ=llm.sandbox_environ)
        if done.start_error or done.exit_code is None:
            said = done.start_error or done.reason or done.stderr[-_LAST_CHARACTERS:]
            raise InfraFailed(f"{argv[0]} did not run to its end: {said}")
        return CommandAnswer(
            exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr, sandbox=place
        )

    return solve


def filled(text: str, problem: Mapping[str, Any]) -> str:
    """The text with `{field}` replaced. Raises `BadInput` for a field that the problem lacks."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in problem:
            fix = f"use one of {', '.join(problem)}"
            raise BadInput("command", f"the problem has no {found[1]!r}", fix)
        return str(problem[found[1]])

    return _FIELD.sub(value, text)


def _image(path: str, shows: Sequence[str]) -> Image:
    if not path:
        return HostImage(also=tuple(shows))
    return DirectoryImage(path=path) if Path(path).is_dir() else TarImage(path=path)
