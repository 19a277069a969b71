"""What of a cluster file a running service can become without a restart, and what it cannot."""

from hashlib import sha256

import msgspec
from msgspec import structs

from artangram.config.cluster import ClusterFile, FunctionsEntry, QuotaEntry, given
from artangram.orchestrator.callbackends import FUNCTIONS, PLATFORM
from artangram.orchestrator.reconfigure import ApiLimits, Reconfiguration
from artangram.sandbox.network import NetworkPolicy


def reconfiguration_of(file: ClusterFile) -> Reconfiguration:
    """What a running service is asked for."""
    ceilings = {str(name): file.ceiling(name) for name in (FUNCTIONS, PLATFORM)}
    limits = ApiLimits.__struct_fields__
    return Reconfiguration(
        shares=file.shares,
        limits=file.limits,
        ceilings={name: most for name, most in ceilings.items() if most is not None},
        apis={
            name: ApiLimits(**{key: getattr(api, key) for key in limits})
            for name, api in file.apis.items()
        },
        fixed=fixed_of(file),
    )


def fixed_of(file: ClusterFile) -> dict[str, str]:
    """What a service keeps while it runs: numbers and names as they are, the rest as a digest."""
    said: dict[str, object] = {"policy": file.policy, "sync": file.sync}
    for name, pool in file.pools.items():
        if file.is_live(name, pool) and not isinstance(pool, QuotaEntry | FunctionsEntry):
            used = [key for key in given(pool) if key in pool.used_live]
            said |= {f"pools.{name}.{key}": getattr(pool, key) for key in used}
    said |= {f"services.{name}": service for name, service in file.services.items()}
    said |= {name: getattr(file, name) for name in ("functions", "images")}
    if file.network != NetworkPolicy():
        said["network"] = file.network
    free = structs.asdict(ApiLimits())
    said |= {f"apis.{name}": structs.replace(api, **free) for name, api in file.apis.items()}
    return {name: _shown(value) for name, value in said.items() if value != ()}


def _shown(value: object) -> str:
    if isinstance(value, str | int | float):
        return str(value)
    return f"another one ({sha256(msgspec.json.encode(value)).hexdigest()[:8]})"
