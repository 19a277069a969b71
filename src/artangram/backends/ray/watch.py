"""The process beside the head that follows Ray's nodes and keeps a warden on each of them.

It speaks JSON lines with the head: `WatchSettings`, `HeadServes` and `CloseWatch` come in,
`Attached`, `Said` and `Failed` go out. It ends everything on Ray when it is told to. When the head
dies, its pipe ends, and this process leaves all as it is: the next head adopts it.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import BinaryIO

import msgspec
import ray
from msgspec import structs

from artangram.backends.ray.cluster import (
    bundles_of,
    check_free,
    connect_to,
    forget_head,
    group_named,
    put_head,
)
from artangram.backends.ray.planning import ClaimSettings, RayNode, node_of, planned
from artangram.backends.ray.records import (
    Attached,
    CloseWatch,
    Failed,
    FromWatch,
    HeadRecord,
    HeadServes,
    Said,
    ToWatch,
    WatchSettings,
    line,
)
from artangram.backends.ray.wardens import Wardens
from artangram.core.errors import BadInput

LOOK_EVERY_S = 0.5
"""How soon a node that Ray has seen is seen here."""

Heard = SimpleQueue[ToWatch | None]


def main() -> None:
    """Run until `CloseWatch` or the end of the pipe."""
    out = _own_stdout()

    def tell(record: FromWatch) -> None:
        with suppress(BrokenPipeError):
            out.write(line(record))
            out.flush()

    heard = _heard()
    try:
        settings = heard.get()
        assert isinstance(settings, WatchSettings)
        watch = NodeWatch(settings, tell)
        watch.attach()
        watch.run(heard)
    except BadInput as error:
        tell(Failed.by(error))
        sys.exit(2)


class NodeWatch:
    """See the module."""

    def __init__(self, settings: WatchSettings, tell: Callable[[FromWatch], None]) -> None:
        self._settings = settings
        self._tell = tell
        self._claims = ClaimSettings(
            cpus=settings.cpus,
            with_gpu_nodes=settings.with_gpu_nodes,
            with_gpus=settings.with_gpus,
        )
        self._wardens = Wardens(settings.cluster, lambda text: tell(Said(text)))
        self._left: dict[str, str] = {}

    def attach(self) -> None:
        """Reach Ray, and say what this machine is there."""
        connect_to(self._settings.address)
        check_free(self._settings.cluster)
        if self._settings.placement_group is not None:
            self._wardens.group = group_named(self._settings.placement_group)
        if self._settings.address.startswith("ray://"):
            self._tell(Attached(address=None, cpus=0))
            return
        here = ray.get_runtime_context().get_node_id()
        self._claims = structs.replace(self._claims, here=here)
        row = next(row for row in ray.nodes() if row["NodeID"] == here)
        claims, _ = planned(filter(None, [node_of(row)]), self._settled(), held=())
        cpus = sum(claim.cpus for claim in claims)
        self._tell(Attached(address=row["NodeManagerAddress"], cpus=cpus))

    def run(self, heard: Heard) -> None:
        """Follow the nodes from `HeadServes` on."""
        serves = False
        while True:
            try:
                order = heard.get(timeout=LOOK_EVERY_S if serves else None)
            except Empty:
                self._look()
                continue
            match order:
                case HeadServes():
                    serves, cluster = True, self._settings.cluster
                    put_head(HeadRecord(url=order.url, token=order.token, cluster=cluster))
                    self._wardens.use(order)
                    self._look()
                case CloseWatch():
                    self._wardens.close(_nodes())
                    forget_head(self._settings.cluster)
                    ray.shutdown()
                    return
                case _:
                    return  # The head is gone; what it started waits for the next one.

    def _look(self) -> None:
        nodes = _nodes()
        claims, left = planned(nodes, self._settled(), held=self._wardens.held())
        for node, why in left.items():
            if self._left.get(node.id) != why:
                self._tell(Said(f"Left out Ray node {node.name}: {why}"))
        self._left = {node.id: why for node, why in left.items()}
        self._wardens.keep(claims, alive={node.id for node in nodes})

    def _settled(self) -> ClaimSettings:
        """What is wanted, with the bundles where they are now."""
        group = self._settings.placement_group
        if group is None:
            return self._claims
        return structs.replace(self._claims, bundles=tuple(bundles_of(group)))


def _nodes() -> list[RayNode]:
    return [node for node in map(node_of, ray.nodes()) if node is not None]


def _heard() -> Heard:
    """What the head says; `None` when its pipe ends."""
    queue: Heard = SimpleQueue()
    decoder = msgspec.json.Decoder(ToWatch)

    def read() -> None:
        # Unbuffered: the interpreter cannot end while a thread holds the lock of a buffer.
        with open(0, "rb", buffering=0, closefd=False) as pipe:
            for text in pipe:
                queue.put(decoder.decode(text))
        queue.put(None)

    Thread(target=read, daemon=True).start()
    return queue


def _own_stdout() -> BinaryIO:
    """The pipe to the head. What Ray prints goes to standard error instead."""
    ours = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return ours


if __name__ == "__main__":
    main()
