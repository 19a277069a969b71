"""Read what a cluster offers from YAML: cores, functions, devices with services, APIs.

```yaml
cores: 8
devices: 2
device_memory_mb: 4096
functions: ["rewards:score"]
services:
  judge: {loader: "artangram.services.shipped.reward:load", batch: 16}
apis:
  search: {base_url: "https://api.example.com", headers: {x-key: "${SEARCH_KEY}"}, limit: 60}
jobs:
  urgent: {share: 3}
```

A key that is not known is an error, never ignored: a misspelt limit would be no limit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from artangram.apis.spec import ApiSpec
from artangram.config.yamlfile import Item, read_yaml
from artangram.core.errors import BadInput
from artangram.observe.badfile import AnyPath, BadFile
from artangram.orchestrator.callbackends import ClusterOptions
from artangram.services.service import Service

Spec = TypeVar("Spec", bound=Struct)

_FIX = "see docs/formats.md, docs/services.md and docs/apis.md"
_OWN = ("cores", "memory_mb", "policy", "images")
_OFFERED = ("workers", "platform_calls", "functions", "devices", "device_memory_mb")


class JobSpec(Struct, frozen=True, kw_only=True):
    """One of the jobs that a cluster may have."""

    share: float = 1.0
    """What it is entitled to when something is short, relative to the others."""

    def __post_init__(self) -> None:
        if self.share <= 0:
            raise ValueError(f"{self.share} is no share; give a number above 0")


class LiveSpec(Struct, frozen=True, kw_only=True):
    """A cluster as its file describes it."""

    cores: Annotated[int, Meta(ge=1)] | None = None
    memory_mb: Annotated[int, Meta(ge=1)] | None = None
    policy: str = "elastic"
    images: tuple[str, ...] = ()
    """Folders of this machine whose images callers over HTTP may name."""
    jobs: dict[str, JobSpec] = {}
    options: ClusterOptions = ClusterOptions()

    @property
    def shares(self) -> dict[str, float]:
        return {name: job.share for name, job in self.jobs.items()}


def read_live(path: AnyPath) -> LiveSpec:
    """The cluster a YAML file describes. Raises `BadFile`."""
    document = read_yaml(path)
    top = document.known([*_OWN, *_OFFERED, "services", "apis", "jobs"])
    offered: dict[str, Any] = {key: top[key].plain() for key in _OFFERED if key in top}
    services = top["services"].mapping() if "services" in top else {}
    apis = top["apis"].mapping() if "apis" in top else {}
    jobs = top["jobs"].mapping() if "jobs" in top else {}
    options = document.converted(ClusterOptions, offered, fix=_FIX)
    options = msgspec.structs.replace(
        options,
        services=tuple(_spec(item, Service, id=name) for name, item in services.items()),
        apis={name: _spec(item, ApiSpec) for name, item in apis.items()},
    )
    rest: dict[str, Any] = {key: top[key].plain() for key in _OWN if key in top}
    client = document.converted(LiveSpec, rest, fix=_FIX)
    named = {name: _spec(item, JobSpec) for name, item in jobs.items()}
    return msgspec.structs.replace(client, options=options, jobs=named)


@contextmanager
def blaming(path: AnyPath | None) -> Iterator[None]:
    """Around the use of a cluster: what is refused of it is said with its place in its file.

    What the file does not say, or what has no file, is refused as it is.
    """
    try:
        yield
    except BadFile:
        raise
    except BadInput as error:
        line = 0 if path is None else _line(read_yaml(path), error.field.split("."))
        if path is None or not line:
            raise
        raise BadFile(path, error, line=line) from error


def _line(item: Item, parts: list[str]) -> int:
    """Where a field is, or the part of it that is there; 0 if nothing is."""
    try:
        found = item.mapping().get(parts[0]) if parts else None
    except BadFile:  # No mapping: its keys are no parts of a field.
        found = None
    if found is None:
        return 0
    return _line(found, parts[1:]) or found.line


def _spec(item: Item, spec: type[Spec], **given: str) -> Spec:
    """A record whose fields are the keys of a mapping."""
    item.known([field for field in spec.__struct_fields__ if field not in given])
    return item.converted(spec, {**item.plain(), **given}, fix=_FIX)
