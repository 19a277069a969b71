"""Tasks by name: the shipped ones, or what a `module:name` makes of a house."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from artangram.core.errors import BadInput
from artangram.envs.protocol import Task
from artangram.envs.tasks import House, demo_task


def task_named(
    name: str, made_by: str, house: House, *, job: str, options: Mapping[str, Any]
) -> Task:
    """The task `name`; `made_by` is called with the house and `options`. Raises `BadInput`."""
    if not made_by:
        return _shipped(name, house, job=job, options=options)
    module, _, attribute = made_by.partition(":")
    try:
        made = getattr(import_module(module), attribute)(house, **options)
    except (ImportError, AttributeError, TypeError) as error:
        fix = "write it as module:name, importable from here, called with the house"
        raise BadInput(f"tasks.{name}.task", f"{made_by!r}: {error}", fix) from error
    if made.name != name:
        problem = f"{made_by!r} calls itself {made.name!r}"
        raise BadInput(f"tasks.{name}", problem, "use the same name")
    return cast(Task, made)


def _shipped(name: str, house: House, *, job: str, options: Mapping[str, Any]) -> Task:
    if unknown := sorted(options.keys() - {"held_out"}):
        fix = 'the only one is held_out; a task of your own has task: "module:name"'
        raise BadInput(f"tasks.{name}.options", f"a shipped task knows no {unknown[0]!r}", fix)
    return demo_task(name, house, job=job, held_out=bool(options.get("held_out")))
