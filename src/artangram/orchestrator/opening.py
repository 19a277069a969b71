"""Checks what a caller says about a new trajectory and turns it into its `Opening`."""

from collections.abc import Callable, Sequence

from artangram.core.errors import BadInput
from artangram.orchestrator.arguments import as_mapping, as_record, as_text, check_known, plain
from artangram.orchestrator.options import TrajectoryOptions
from artangram.orchestrator.records import Opening
from artangram.sandbox.network import Network
from artangram.sandbox.protocol import HostImage, Limits
from artangram.sandbox.user import BOX

_USUAL = {"name": BOX.name, "home": BOX.home, "workdir": BOX.workdir}
_AS_GIVEN = ("job", "task", "problem", "idle_s", "lifetime_s", "parent")


def opening_of(options: TrajectoryOptions, *, new_id: Callable[[], str]) -> Opening:
    """Raises `BadInput`."""
    check_known(TrajectoryOptions, options, of="a trajectory")
    memory_mb = options.get("memory_mb", 512)
    limits = Limits.sized(
        memory_mb,
        disk_mb=options.get("disk_mb"),
        processes=options.get("processes", 256),
        storage=options.get("storage", "memory"),
        network=_network(options.get("network", False)),
    )
    name = options.get("id")
    named = "" if name is None else as_text("id", name)
    told = {"name": options.get("user"), **{one: options.get(one) for one in ("home", "workdir")}}
    given = {
        "trajectory": named or f"{options.get('task') or 'trajectory'}-{new_id()}",
        **{one: value for one, value in options.items() if one in _AS_GIVEN},
        "memory_mb": memory_mb,
        "environ": as_mapping("environ", options.get("environ")),
        "selector": as_mapping("selector", options.get("selector")),
        # As plain data: msgspec does not check the fields of a record that exists already.
        "place": {
            "source": plain("place.source", options.get("source") or HostImage()),
            "limits": plain("place.limits", limits),
            "provider": options.get("provider", ""),
            "user": _USUAL | {one: value for one, value in told.items() if value is not None},
        },
    }
    return as_record(Opening, given)


def _network(given: object) -> Network:
    if isinstance(given, bool | str):
        return given
    if not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
        problem = f"expected a list of hosts, got `{type(given).__name__}`"
        raise BadInput("network", problem, "give True, False or a list like ['pypi.org']")
    return tuple(given)
