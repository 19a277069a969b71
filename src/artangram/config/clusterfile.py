"""Read a cluster from YAML, for a simulation and for a live service alike.

- Every field of the records in `config.cluster` is a key. A size may be given in GB instead of MB:
  `memory_gb: 80` is `memory_mb: 80000`, `restore_gb_per_s: 16` is `restore_mb_per_s: 16000`.
- A key that is not known is an error, never ignored: a misspelt limit would be no limit.
- What the cluster cannot be is said by its views, `simulated` and `options`; `blaming` around them
  adds the line of the file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import yaml
from msgspec import Struct, structs
from msgspec.structs import FieldInfo

from artangram.apis.spec import ApiSpec
from artangram.config.cluster import (
    ClusterFile,
    CpuEntry,
    FunctionsEntry,
    GpuEntry,
    JobEntry,
    PoolEntry,
    QuotaEntry,
    ServiceEntry,
)
from artangram.config.yamlfile import Item, parse_yaml, read_yaml
from artangram.core.errors import BadInput
from artangram.core.ids import Resource, ServiceId
from artangram.core.scheduling.cluster import ClusterSpec, JobLimits
from artangram.core.scheduling.speedup import MOST_UNITS
from artangram.observe.badfile import AnyPath, BadFile, nearest

MB_PER_GB = 1000

MOST_MB = 10**12
LEAST_RATE, MOST_NUMBER = 1e-6, 1e9
"""Seconds, rates and shares beyond are typing errors, and no clock would have room for them."""

KINDS: dict[str, type[PoolEntry]] = {
    "cpu": CpuEntry,
    "gpu": GpuEntry,
    "quota": QuotaEntry,
    "functions": FunctionsEntry,
}

_MAY_BE_ZERO = {
    "host_memory_mb",
    "runtime_mb",
    "min_memory_mb",
    "min_trajectories",
    "min_cores",
    "min_calls",
}
_NEVER_ZERO = {"window_s", "restore_mb_per_s", "cold_mb_per_s", "pods_per_s", "share"}
_SHARES = {"squeeze_penalty"}
_LIMITS = ("concurrency", "limit", "window_s", "windows")
_FIX = "see docs/formats.md, docs/services.md and docs/apis.md"
_IN_POOLS = {
    "cores": "cpu: {kind: cpu, cores: 4}",
    "memory_mb": "cpu: {kind: cpu, memory_mb: 8000}",
    "memory_gb": "cpu: {kind: cpu, memory_gb: 8}",
    "devices": "gpu: {kind: gpu, devices: 1}",
    "device_memory_mb": "gpu: {kind: gpu, memory_mb: 2000}",
    "workers": "functions: {kind: functions, ceiling: 4}",
    "platform_calls": "platform: {kind: functions, ceiling: 64}",
}
"""Arguments of `artangram.local` that are amounts of a pool in a file."""

Spec = TypeVar("Spec", bound=Struct)


class _Key(NamedTuple):
    """What a key of the file stands for."""

    field: FieldInfo
    factor: int


def read_cluster(path: AnyPath) -> ClusterFile:
    """The cluster a YAML file describes. Raises `BadFile`."""
    return _cluster(read_yaml(path))


def _cluster(document: Item) -> ClusterFile:
    for key, item in document.mapping().items():
        if key in _IN_POOLS:
            fix = f"write it as `pools: {{{_IN_POOLS[key]}}}`"
            raise item.bad("belongs to a pool", fix)
    top = document.known(ClusterFile.__struct_fields__)
    pools = {Resource(name): _pool(item) for name, item in _section(top, "pools")}
    if "pools" in top and not pools:
        raise top["pools"].bad("is empty", "describe at least one pool")
    simple = ("functions", "images", "network", "provider", "sync", "fence_s", "keep")
    plain: dict[str, Any] = {key: top[key].plain() for key in simple if key in top}
    return structs.replace(
        document.converted(ClusterFile, plain, fix=_FIX),
        pools=pools,
        services={ServiceId(k): _record(v, ServiceEntry) for k, v in _section(top, "services")},
        apis={name: _api(name, item, pools) for name, item in _section(top, "apis")},
        jobs={name: _record(item, JobEntry) for name, item in _section(top, "jobs")},
        policy=top["policy"].text() if "policy" in top else ClusterFile().policy,
    )


@contextmanager
def blaming(path: AnyPath | None, *, always: bool = False) -> Iterator[None]:
    """Around the use of a cluster: a complaint about it names the line of its file.

    A complaint about what the file does not say passes as it is, unless it is `always` the file's
    fault; so does any complaint where there is no file.
    """
    try:
        yield
    except BadFile:
        raise
    except BadInput as error:
        if path is None:
            raise
        document = read_yaml(path)
        line = _line(document, error.field.split(".")) or (document.line if always else 0)
        if not line:
            raise
        raise BadFile(path, error, line=line) from error


def _line(item: Item, parts: list[str]) -> int:
    """The line of a field, or of the part of it that the file has; 0 if it has no part of it."""
    try:
        found = item.mapping().get(parts[0]) if parts else None
    except BadFile:  # A value that is no mapping: its keys are no parts of a field.
        found = None
    if found is None:
        return 0
    return _line(found, parts[1:]) or found.line


def write_cluster(path: AnyPath, cluster: ClusterSpec) -> None:
    """Write `cluster` so that `read_cluster` gives it back. Raises `BadInput` if it would not."""
    document = {
        "pools": {
            str(name): {"kind": pool.__struct_config__.tag, **_written(pool)}
            for name, pool in cluster.pools.items()
        },
        "services": {str(name): _written(spec) for name, spec in cluster.services.items()},
        "jobs": {
            str(name): {"share": cluster.shares.get(name, 1.0), **_written(limits)}
            for name, limits in {
                **dict.fromkeys(cluster.shares, JobLimits()),
                **cluster.limits,
            }.items()
        },
    }
    kept = {name: section for name, section in document.items() if section}
    text = yaml.safe_dump(kept, sort_keys=False)
    try:
        _cluster(parse_yaml(text, path=path)).simulated()
    except BadFile as error:  # There is no file yet whose line could be named.
        raise BadInput(error.field, error.problem, error.fix) from None
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        problem = error.strerror or str(error)
        raise BadInput(str(path), problem, "name a file you may write") from None


def _written(spec: Struct) -> dict[str, Any]:
    fields = msgspec.to_builtins(spec)
    return {
        key: value for key, value in fields.items() if key != "type" and value not in (None, {})
    }


def _section(top: dict[str, Item], name: str) -> list[tuple[str, Item]]:
    return list(top[name].mapping().items()) if name in top else []


def _pool(item: Item) -> PoolEntry:
    kinds = f"use one of {', '.join(KINDS)}"
    kind_item = item.mapping().get("kind")
    if kind_item is None:
        raise item.bad("is missing", kinds, key="kind")
    kind = kind_item.text()
    if kind not in KINDS:
        raise kind_item.bad(f"unknown kind {kind!r}", nearest(kind, list(KINDS)))
    entry: PoolEntry = _record(item, KINDS[kind], beside=["kind"])
    return entry


def _api(name: str, item: Item, pools: dict[Resource, PoolEntry]) -> ApiSpec:
    """An API, with the limits that the pool of its name gives."""
    entries = item.known(ApiSpec.__struct_fields__)
    spec = item.converted(ApiSpec, item.plain(), fix=_FIX)
    pool = pools.get(Resource(name))
    if pool is None:
        return spec
    if not isinstance(pool, QuotaEntry):
        raise item.bad("is another resource of this cluster", "use another name")
    for key in _LIMITS:
        if key in entries:
            raise entries[key].bad(f"pools.{name} has the limits", "remove it, or that pool")
    limits = {key: getattr(pool, key) for key in _LIMITS if getattr(pool, key) is not None}
    return structs.replace(spec, **limits)


def _record(item: Item, kind: type[Spec], *, beside: list[str] | None = None) -> Spec:
    """The record that a mapping describes; `beside` are keys that the caller reads."""
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
    return item.converted(kind, values, fix=_FIX)


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
    if name == "pool":
        return item.text()
    if _holds(kind, tuple[int, ...]):
        return _degrees(item)
    if not (_holds(kind, int) or _holds(kind, float)):
        return item.plain()
    number = item.number() * key.factor
    if _holds(kind, int):
        return _whole(item, name, number)
    least = LEAST_RATE if name in _NEVER_ZERO else 0
    if not least <= number <= MOST_NUMBER:
        raise item.bad(f"{item.value()!r} is out of range", f"give {least:g} to {MOST_NUMBER:g}")
    if name in _SHARES and number >= 1:
        raise item.bad(f"{item.value()!r} is not a share", "give a number from 0 to below 1")
    return float(number)


def _holds(kind: Any, wanted: Any) -> bool:
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
