"""Read the description of a cluster from YAML.

- Every field of the specs in `core.cluster` is a key. A size may be given in GB instead of MB:
  `memory_gb: 80` is `memory_mb: 80000`, `restore_gb_per_s: 16` is `restore_mb_per_s: 16000`.
- A key that is not known is an error, never ignored: a misspelt limit would be no limit.
- What this returns is consistent: services name a GPU pool, and fit it at some degree.
"""

from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import FieldInfo

from artangram.config.yamlfile import Item, parse_yaml, read_yaml
from artangram.core.errors import BadInput
from artangram.core.ids import JobId, Resource, ServiceId
from artangram.core.scheduling.cluster import (
    ClusterSpec,
    CpuSpec,
    FunctionsSpec,
    GpuSpec,
    PoolSpec,
    QuotaSpec,
    ServiceSpec,
)
from artangram.core.scheduling.speedup import MOST_UNITS
from artangram.observe.badfile import AnyPath, BadFile, nearest

MB_PER_GB = 1000

MOST_MB = 10**12
LEAST_RATE, MOST_NUMBER = 1e-6, 1e9
"""Seconds, rates and shares beyond are typing errors, and no clock would have room for them."""

KINDS: dict[str, type[PoolSpec]] = {
    "cpu": CpuSpec,
    "gpu": GpuSpec,
    "quota": QuotaSpec,
    "functions": FunctionsSpec,
}

_MAY_BE_ZERO = {"host_memory_mb", "runtime_mb"}
_NEVER_ZERO = {"window_s", "restore_mb_per_s", "cold_mb_per_s", "pods_per_s", "share"}
_SHARES = {"squeeze_penalty"}

Spec = TypeVar("Spec", bound=Struct)


class _Job(Struct, frozen=True, kw_only=True):
    share: float = 1.0


class _Key(NamedTuple):
    """What a key of the file stands for."""

    field: FieldInfo
    factor: int


def read_cluster(path: AnyPath) -> ClusterSpec:
    """The cluster a YAML file describes. Raises `BadFile`."""
    return _cluster(read_yaml(path))


def _cluster(document: Item) -> ClusterSpec:
    top = document.known(["pools", "services", "jobs"])
    if "pools" not in top:
        raise document.bad("is missing", "describe at least one pool", key="pools")
    pools = {Resource(name): _pool(item) for name, item in top["pools"].mapping().items()}
    if not pools:
        raise top["pools"].bad("is empty", "describe at least one pool")
    return ClusterSpec(
        pools=pools,
        services={ServiceId(k): _service(v, pools) for k, v in _section(top, "services")},
        shares={JobId(k): _spec(v, _Job).share for k, v in _section(top, "jobs")},
    )


def write_cluster(path: AnyPath, cluster: ClusterSpec) -> None:
    """Write `cluster` so that `read_cluster` gives it back. Raises `BadInput` if it would not."""
    document = {
        "pools": {
            str(name): {"kind": pool.__struct_config__.tag, **_written(pool)}
            for name, pool in cluster.pools.items()
        },
        "services": {str(name): _written(spec) for name, spec in cluster.services.items()},
        "jobs": {str(name): {"share": share} for name, share in cluster.shares.items()},
    }
    kept = {name: section for name, section in document.items() if section}
    text = yaml.safe_dump(kept, sort_keys=False)
    try:
        _cluster(parse_yaml(text, path=path))
    except BadFile as error:  # There is no file yet whose line could be named.
        raise BadInput(error.field, error.problem, error.fix) from None
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        problem = error.strerror or str(error)
        raise BadInput(str(path), problem, "name a file you may write") from None


def _written(spec: Struct) -> dict[str, Any]:
    fields = msgspec.to_builtins(spec)
    return {key: value for key, value in fields.items() if key != "type" and value is not None}


def _section(top: dict[str, Item], name: str) -> list[tuple[str, Item]]:
    return list(top[name].mapping().items()) if name in top else []


def _pool(item: Item) -> PoolSpec:
    kinds = f"use one of {', '.join(KINDS)}"
    kind_item = item.mapping().get("kind")
    if kind_item is None:
        raise item.bad("is missing", kinds, key="kind")
    kind = kind_item.text()
    if kind not in KINDS:
        raise kind_item.bad(f"unknown kind {kind!r}", nearest(kind, list(KINDS)))
    spec: PoolSpec = _spec(item, KINDS[kind], beside=["kind"])
    if isinstance(spec, CpuSpec) and spec.numa > spec.cores:
        problem = f"{spec.numa} domains of {spec.cores} cores"
        raise item.bad(problem, "give at most as many domains as cores", key="numa")
    if isinstance(spec, CpuSpec):
        _check_total(item, "cores", nodes=spec.nodes, each=spec.cores)
    if isinstance(spec, GpuSpec):
        _check_total(item, "devices", nodes=spec.nodes, each=spec.devices)
    if isinstance(spec, QuotaSpec) and spec.concurrency is None and spec.limit is None:
        raise item.bad("limits nothing", "give concurrency, limit or both")
    return spec


def _check_total(item: Item, key: str, *, nodes: int, each: int) -> None:
    """Each of them has a place in the books, whoever uses it."""
    if nodes * each > MOST_UNITS:
        fix = f"give at most {MOST_UNITS} of a pool"
        raise item.mapping()[key].bad(f"{nodes * each} in all nodes are too many", fix)


def _service(item: Item, pools: dict[Resource, PoolSpec]) -> ServiceSpec:
    spec = _spec(item, ServiceSpec)
    pool = pools.get(spec.pool)
    if not isinstance(pool, GpuSpec):
        gpus = [str(name) for name, other in pools.items() if isinstance(other, GpuSpec)]
        fix = nearest(spec.pool, gpus) if gpus else "describe a pool of kind gpu"
        raise item.mapping()["pool"].bad(f"{spec.pool!r} is not a GPU pool", fix)
    _check_degrees(item, spec, pool)
    return spec


def _check_degrees(item: Item, spec: ServiceSpec, pool: GpuSpec) -> None:
    for degree in spec.degrees:
        if degree & (degree - 1) or degree > pool.devices:
            fix = f"give powers of two up to {pool.devices}, the devices of a node"
            raise item.mapping()["degrees"].bad(f"{degree} cannot be placed", fix)
    least = min(spec.device_mb(degree) for degree in spec.degrees)
    if least > pool.memory_mb:
        problem = f"needs {least} MB on each device and a device has {pool.memory_mb} MB"
        raise item.bad(problem, "add a higher degree or give the devices more memory")


def _spec(item: Item, kind: type[Spec], *, beside: list[str] | None = None) -> Spec:
    """The record that a mapping describes; `beside` are keys somebody else reads."""
    keys = _keys(kind)
    entries = item.known([*(beside or []), *keys])
    values: dict[str, object] = {}
    for name, entry in entries.items():
        if name not in keys:
            continue
        field = keys[name].field
        if field.name in values:
            raise entry.bad(f"{field.name} is already given", "remove one of them")
        values[field.name] = _value(entry, keys[name])
    for name, key in keys.items():
        if key.field.required and key.field.name not in values:
            raise item.bad("is missing", "add it", key=name)
    return kind(**values)


def _keys(kind: type[Struct]) -> dict[str, _Key]:
    """Every key for a record; sizes in GB come before the same in MB, as people write them."""
    keys: dict[str, _Key] = {}
    for field in msgspec.structs.fields(kind):
        if "_mb" in field.name:
            keys[field.name.replace("_mb", "_gb")] = _Key(field, MB_PER_GB)
        keys[field.name] = _Key(field, 1)
    return keys


def _value(item: Item, key: _Key) -> object:
    name, kind = key.field.name, key.field.type
    if kind is Resource:
        return item.text()
    if kind == tuple[int, ...]:
        return _degrees(item)
    number = item.number() * key.factor
    if _holds(kind, int):
        return _whole(item, name, number)
    least = LEAST_RATE if name in _NEVER_ZERO else 0
    if not least <= number <= MOST_NUMBER:
        raise item.bad(f"{item.value()!r} is out of range", f"give {least:g} to {MOST_NUMBER:g}")
    if name in _SHARES and number >= 1:
        raise item.bad(f"{item.value()!r} is not a share", "give a number from 0 to below 1")
    return float(number)


def _holds(kind: Any, wanted: type) -> bool:
    return kind is wanted or wanted in getattr(kind, "__args__", ())


def _whole(item: Item, name: str, number: float) -> int:
    is_size = name.endswith("_mb")
    least, most = int(name not in _MAY_BE_ZERO), MOST_MB if is_size else MOST_UNITS
    if not least <= number <= most:
        fix = f"give {least} to {most}{' MB' if is_size else ''}"
        raise item.bad(f"{item.value()!r} is out of range", fix)
    if number != int(number) and not is_size:
        raise item.bad(f"{item.value()!r} is not a whole number", "give a whole number")
    return round(number)  # 64.1 GB are 64099.99... MB


def _degrees(item: Item) -> tuple[int, ...]:
    degrees = {_whole(entry, "degrees", entry.number()) for entry in item.items()}
    if not degrees:
        raise item.bad("is empty", "give at least one degree")
    return tuple(sorted(degrees))
