"""A Ray cluster as we use it: a connection, a key with the head's address, placement groups.

The head's address and token lie in Ray's key-value store: callers that can reach Ray can read them,
and they could run any code there anyway.
"""

from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import msgspec
import ray
from ray.experimental import internal_kv
from ray.util.placement_group import PlacementGroup

from artangram.backends.ray.planning import PlacementBundle
from artangram.backends.ray.records import NAMESPACE, HeadRecord
from artangram.core.errors import BadInput

_KEY = b"head"
_NAMESPACE = NAMESPACE.encode()
ANSWER_S = 3.0


def connect_to(address: str) -> None:
    """Join the Ray cluster at `address` as a driver. Raises `BadInput`."""
    try:
        ray.init(address=address, namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())[:300].rstrip(".")
        fix = "start one with `ray start`, or give its address"
        raise BadInput("ray", f"no Ray cluster answers at {address!r} ({said})", fix) from None


def head_record() -> HeadRecord | None:
    """Which head serves on the Ray cluster that this process is connected to."""
    found = internal_kv._internal_kv_get(_KEY, namespace=_NAMESPACE)
    return None if not found else msgspec.json.decode(found, type=HeadRecord)


def own_head(address: str) -> HeadRecord:
    """The same. Raises `BadInput` if there is no head; `address` is what the user called it."""
    record = head_record()
    if record is None:
        problem = f"no Artangram serves on the Ray cluster at {address}"
        raise BadInput("url", problem, "start it with `artangram up --ray auto`")
    return record


def put_head(record: HeadRecord) -> None:
    """Tell callers where the head is."""
    body = msgspec.json.encode(record)
    internal_kv._internal_kv_put(_KEY, body, overwrite=True, namespace=_NAMESPACE)


def forget_head(cluster: str) -> None:
    """The head of this cluster serves no more; one of another cluster stays."""
    record = head_record()
    if record is not None and record.cluster == cluster:
        internal_kv._internal_kv_del(_KEY, namespace=_NAMESPACE)


def check_free(cluster: str) -> None:
    """Raises `BadInput` if another head serves here: two would fight for the same nodes."""
    record = head_record()
    if record is None or record.cluster == cluster or not _answers(record.url):
        return
    problem = f"another Artangram serves on this Ray cluster, at {record.url}"
    raise BadInput("ray", problem, "stop it first, or use it: artangram.connect('ray://auto')")


def group_named(name: str) -> Any:
    """A placement group by its id or its name, whatever its namespace. Raises `BadInput`."""
    found = [
        group_id
        for group_id, row in ray.util.placement_group_table().items()
        if name in (group_id, row["name"]) and row["state"] != "REMOVED"
    ]
    if len(found) == 1:
        return PlacementGroup(ray.PlacementGroupID(bytes.fromhex(found[0])))
    problem = f"Ray has {len(found)} placement groups named {name!r}"
    raise BadInput("--ray-placement-group", problem, "give the id of one that exists")


def bundles_of(name: str) -> Iterator[PlacementBundle]:
    """The bundles of a placement group that are placed; none after it was removed."""
    try:
        row = ray.util.placement_group_table(group_named(name))
    except BadInput:
        return
    if row["state"] not in ("CREATED", "RESCHEDULING"):
        return
    for index, amounts in row["bundles"].items():
        node = row["bundles_to_node_id"].get(index)
        if node:
            cpus, gpus = int(amounts.get("CPU", 0)), float(amounts.get("GPU", 0))
            yield PlacementBundle(index=index, cpus=cpus, gpus=gpus, node=node)


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/v1/openapi.json", timeout=ANSWER_S):
            return True
    except HTTPError:
        return True
    except OSError:
        return False
