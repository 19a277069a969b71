"""Tasks by name: the shipped ones, or what a `module:name` makes of a client."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, cast

from artangram.core.errors import BadInput
from artangram.envs.protocol import Task
from artangram.envs.tasks import TaskClient, demo_task
from artangram.pipeline.imported import imported

_FIX = "write it as module:name, importable from here, called with the cluster"


def task_named(
    name: str, made_by: str, client: TaskClient, *, job: str, options: Mapping[str, Any]
) -> Task:
    """The task `name`; `made_by` is called with the client and `options`. Raises `BadInput`."""
    try:
        check_made(made_by, options)
        if not made_by:
            return demo_task(name, client, job=job, held_out=bool(options.get("held_out")))
        made = _made(made_by, client, options)
        if made.name != name:
            problem = f"{made_by!r} calls itself {made.name!r}"
            raise BadInput("task", problem, "use the same name")
    except BadInput as error:
        raise error.within(f"tasks.{name}") from error
    return made


def check_made(made_by: str, options: Mapping[str, Any]) -> None:
    """Raises `BadInput` for a task that nothing here could make of a client and `options`."""
    if not made_by:
        if unknown := sorted(options.keys() - {"held_out"}):
            fix = 'the only one is held_out; a task of your own has task: "module:name"'
            raise BadInput("options", f"a shipped task knows no {unknown[0]!r}", fix)
        return
    maker = _maker(made_by)
    try:
        shape = signature(maker)
    except ValueError:  # Of a maker that is not written in Python.
        return
    try:
        shape.bind(None, **options)
    except TypeError as error:
        fix = "give what it takes after the cluster"
        raise BadInput("options", f"do not fit {made_by!r}: {error}", fix) from error


def _made(made_by: str, client: TaskClient, options: Mapping[str, Any]) -> Task:
    try:
        return cast(Task, _maker(made_by)(client, **options))
    except (ImportError, AttributeError, TypeError) as error:
        raise BadInput("task", f"{made_by!r}: {error}", _FIX) from error


def _maker(made_by: str) -> Callable[..., Any]:
    return imported(made_by, field="task", fix=_FIX)
