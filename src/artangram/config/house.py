"""Read what a house offers from YAML: cores, functions, devices with services, APIs.

```yaml
cores: 8
devices: 2
device_memory_mb: 4096
functions: ["rewards:score"]
services:
  judge: {loader: "artangram.services.shipped.judge:load", batch: 16}
apis:
  search: {base_url: "https://api.example.com", headers: {x-key: "${SEARCH_KEY}"}, limit: 60}
```

A key that is not known is an error, never ignored: a misspelt limit would be no limit.
"""

import re
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from artangram.apis.spec import ApiSpec
from artangram.config.yamlfile import Item, read_yaml
from artangram.observe.badfile import AnyPath, nearest
from artangram.orchestrator.workshop import Offers
from artangram.services.service import Service

Spec = TypeVar("Spec", bound=Struct)

_OWN = ("cores", "memory_mb", "policy")
_OFFERED = ("workers", "functions", "devices", "device_memory_mb")
_BAD_FIELD = re.compile(r"(?P<problem>.*) - at `\$\.?(?P<field>.*)`")


class HouseSpec(Struct, frozen=True, kw_only=True):
    """A house as its file describes it."""

    cores: int | None = None
    memory_mb: int | None = None
    policy: str = "elastic"
    offers: Offers = Offers()


def read_house(path: AnyPath) -> HouseSpec:
    """The house a YAML file describes. Raises `BadFile`."""
    document = read_yaml(path)
    top = _known(document, [*_OWN, *_OFFERED, "services", "apis"])
    offered: dict[str, Any] = {key: top[key].plain() for key in _OFFERED if key in top}
    services = top["services"].mapping() if "services" in top else {}
    apis = top["apis"].mapping() if "apis" in top else {}
    offers = _converted(document, Offers, offered)
    offers = msgspec.structs.replace(
        offers,
        services=tuple(_spec(item, Service, id=name) for name, item in services.items()),
        apis={name: _spec(item, ApiSpec) for name, item in apis.items()},
    )
    rest: dict[str, Any] = {key: top[key].plain() for key in _OWN if key in top}
    house = _converted(document, HouseSpec, rest)
    return msgspec.structs.replace(house, offers=offers)


def _spec(item: Item, spec: type[Spec], **given: str) -> Spec:
    """A record whose fields are the keys of a mapping."""
    _known(item, [field for field in spec.__struct_fields__ if field not in given])
    return _converted(item, spec, {**item.plain(), **given})


def _known(item: Item, valid: list[str]) -> dict[str, Item]:
    entries = item.mapping()
    for key, entry in entries.items():
        if key not in valid:
            raise entry.bad("unknown key", nearest(key, valid))
    return entries


def _converted(item: Item, spec: type[Spec], values: dict[str, Any]) -> Spec:
    try:
        return msgspec.convert(values, type=spec)
    except msgspec.ValidationError as error:
        found = _BAD_FIELD.fullmatch(str(error))
        field = found["field"] if found else ""
        place = item.mapping().get(field.partition("[")[0].partition(".")[0], item)
        problem = found["problem"] if found else str(error)
        raise place.bad(problem.lower(), "see docs/services.md and docs/apis.md") from None
