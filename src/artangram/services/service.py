"""What a model service is: a loader, its weights, and what it asks of a device.

- A loader is a function importable by name: `load(files, **options)` gives a model, which answers
  `predict(payloads) -> answers`, both lists of JSON values. A model may be that function itself.
- `files` are the service's weights, in the order given. The loader is called anew at every restore
  and finds them in shared memory then: it should map them, not copy them.
- Weights are the same on every call; nothing a model changes in itself outlives an eviction. What
  it changes in its process may, if it `leaves_nothing`: that is its author's word.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from artangram.core.errors import BadInput
from artangram.core.ids import ServiceId

Loader = str | Callable[..., Any]


class Service(Struct, frozen=True, kw_only=True):
    """A model service, as it is deployed."""

    id: ServiceId
    loader: str
    """`package.module:function`; see `loader_name` for a function at hand."""
    options: dict[str, Any] = {}
    """Further keyword arguments of the loader; JSON values."""
    weights: tuple[str, ...] = ()
    """Files that are kept once in the node's memory and handed to the loader at every restore."""
    degrees: tuple[int, ...] = (1,)
    """Numbers of devices that one replica can run on."""
    batch: int = 8
    """How many payloads a replica answers together, and how many calls it may have at once."""
    batch_cost: float | None = None
    """What another call adds to the time of a batch, as a share of one alone. Default: measured
    with the example."""
    runtime_mb: int | None = None
    """Memory of a replica beside its weights. Default: measured when it is deployed."""
    example: Any | UnsetType = UNSET
    """A payload that is tried at deploy time: a model that cannot answer is refused at once."""
    longest_predict_s: float = 300.0
    """A replica whose batch takes longer is killed, and its calls fail."""
    leaves_nothing: bool = False
    """A model that is dropped leaves nothing behind in its process, so the process may load another
    service of the same loader: a restore on cores needs no fork."""


def loader_name(loader: Loader) -> str:
    """The name under which another process finds `loader`."""
    if isinstance(loader, str):
        return loader
    module, name = getattr(loader, "__module__", None), getattr(loader, "__qualname__", "")
    if not module or not name or "<" in name:
        fix = "define the loader with def at the top of a module"
        raise BadInput("loader", f"{loader!r} has no name to import it by", fix)
    if module == "__main__":
        fix = "move it to a module that can be imported"
        raise BadInput("loader", f"{name} lives in the program itself", fix)
    return f"{module}:{name}"


def checked(service: Service, *, num_devices: int, memory_mb: int) -> Service:
    """`service` itself, or `BadInput` for what could never be resident on such devices."""
    if not service.id:
        raise BadInput("id", "is empty", "name the service")
    _check_loader(service.loader)
    _check_options(service.options)
    _check_degrees(service.degrees, num_devices)
    if service.batch < 1:
        raise BadInput("batch", f"{service.batch} is not a number of calls", "give 1 or more")
    if service.runtime_mb is not None and service.runtime_mb < 0:
        raise BadInput("runtime_mb", f"{service.runtime_mb} is negative", "give 0 or more")
    if not 0 < service.longest_predict_s < math.inf:
        fix = "give a number of seconds"
        raise BadInput("longest_predict_s", f"{service.longest_predict_s!r} is not a limit", fix)
    _check_weights(service, memory_mb)
    return service


def _check_loader(loader: str) -> None:
    module, colon, name = loader.partition(":")
    if not (colon and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))):
        raise BadInput("loader", f"{loader!r} names no function", "write it as module:function")


def _check_options(options: dict[str, Any]) -> None:
    try:
        msgspec.json.encode(options)
    except (TypeError, ValueError) as error:
        raise BadInput("options", f"are not JSON: {error}", "use JSON values only") from None


def _check_degrees(degrees: tuple[int, ...], num_devices: int) -> None:
    if not degrees:
        raise BadInput("degrees", "are empty", "name at least one, as in [1]")
    for degree in degrees:
        if degree < 1 or degree & (degree - 1):
            raise BadInput("degrees", f"{degree} is not a power of two", "use 1, 2, 4 or 8")
    if min(degrees) > num_devices:
        problem = f"{min(degrees)} devices are the least, the node has {num_devices}"
        raise BadInput("degrees", problem, "add a smaller degree, or devices")


def _check_weights(service: Service, memory_mb: int) -> None:
    for index, name in enumerate(service.weights):
        if not Path(name).is_file():
            raise BadInput(f"weights[{index}]", f"{name!r} is not a file", "give its full path")
    check_room(weights_mb(service.weights), max(service.degrees), memory_mb=memory_mb)


def check_room(weights_mb: int, degree: int, *, memory_mb: int, runtime_mb: int = 0) -> None:
    """`BadInput` if a share of the weights, and running it, take more than any device has."""
    share = -(-weights_mb // degree)
    if share + runtime_mb <= memory_mb:
        return
    takes = f"1/{degree} of its weights" if degree > 1 else "its weights"
    takes += f": {share} MB"
    fix = "use larger devices, a higher degree or a smaller model"
    if runtime_mb:
        takes += f", running it: {runtime_mb} MB"
        fix += ", or say how little it needs with runtime_mb"
    raise BadInput("weights", f"no device has more than {memory_mb} MB; {takes}", fix)


def weights_mb(files: tuple[str, ...]) -> int:
    """The size of `files` together."""
    return -(-sum(Path(name).stat().st_size for name in files) // 2**20)
