"""Read what a house offers from YAML: cores, functions, devices with services, APIs.

```yaml
cores: 8
devices: 2
device_memory_mb: 4096
functions: ["rewards:score"]
services:
  judge: {loader: "artangram.services.shipped.reward:load", batch: 16}
apis:
  search: {base_url: "https://api.example.com", headers: {x-key: "${SEARCH_KEY}"}, limit: 60}
```

A key that is not known is an error, never ignored: a misspelt limit would be no limit.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from artangram.apis.spec import ApiSpec
from artangram.config.yamlfile import Item, read_yaml
from artangram.observe.badfile import AnyPath
from artangram.orchestrator.workshop import Offers
from artangram.services.service import Service

Spec = TypeVar("Spec", bound=Struct)

_FIX = "see docs/services.md and docs/apis.md"
_OWN = ("cores", "memory_mb", "policy", "images")
_OFFERED = ("workers", "platform_calls", "functions", "devices", "device_memory_mb")


class HouseSpec(Struct, frozen=True, kw_only=True):
    """A house as its file describes it."""

    cores: int | None = None
    memory_mb: int | None = None
    policy: str = "elastic"
    images: tuple[str, ...] = ()
    """Folders of this machine whose images callers over HTTP may name."""
    offers: Offers = Offers()


def read_house(path: AnyPath) -> HouseSpec:
    """The house a YAML file describes. Raises `BadFile`."""
    document = read_yaml(path)
    top = document.known([*_OWN, *_OFFERED, "services", "apis"])
    offered: dict[str, Any] = {key: top[key].plain() for key in _OFFERED if key in top}
    services = top["services"].mapping() if "services" in top else {}
    apis = top["apis"].mapping() if "apis" in top else {}
    offers = document.converted(Offers, offered, fix=_FIX)
    offers = msgspec.structs.replace(
        offers,
        services=tuple(_spec(item, Service, id=name) for name, item in services.items()),
        apis={name: _spec(item, ApiSpec) for name, item in apis.items()},
    )
    rest: dict[str, Any] = {key: top[key].plain() for key in _OWN if key in top}
    house = document.converted(HouseSpec, rest, fix=_FIX)
    return msgspec.structs.replace(house, offers=offers)


def _spec(item: Item, spec: type[Spec], **given: str) -> Spec:
    """A record whose fields are the keys of a mapping."""
    item.known([field for field in spec.__struct_fields__ if field not in given])
    return item.converted(spec, {**item.plain(), **given}, fix=_FIX)
