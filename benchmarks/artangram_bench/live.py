"""No-op actions through the scheduler and real worker processes, beside Ray and Dask.

The peers run a no-op function in two worker processes, and so do we: every action is submitted,
scheduled, sent to a worker over a socket, run there, sent back and reported. What we leave out is
what the peers also carry: results as objects, fault tolerance, several machines.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from logging import ERROR
from select import select
from struct import Struct as Layout
from time import perf_counter
from typing import Any

from artangram.core.errors import BadInput
from artangram.core.ids import ActionId
from artangram.core.scheduling.events import Event, Finished
from artangram.core.scheduling.policies.catalog import policy
from artangram.core.scheduling.scheduler import Scheduler
from artangram_bench.cost import Feed, a_cluster, started

WORKERS = 2
DEPTH = 32
"""Actions under way per worker: a worker has the next one before it has answered the last."""

_ID = Layout("<q")


def ours_us(num_actions: int) -> float:
    """Wall microseconds per action with all of them queued at the beginning."""
    with _workers() as sockets:
        scheduler = Scheduler(a_cluster(1, WORKERS * DEPTH), policy("elastic"))
        feed = Feed(0.0)
        events: list[Event] = [feed.next() for _ in range(num_actions)]
        began = perf_counter()
        left = num_actions
        while left:
            leases = started(scheduler.handle_all(events, perf_counter() - began))
            _send(sockets, [int(lease.action_id) for lease in leases])
            done = _receive(sockets)
            left -= len(done)
            events = [Finished(ActionId(str(number))) for number in done]
        return 1e6 * (perf_counter() - began) / num_actions


def _send(sockets: list[socket.socket], numbers: list[int]) -> None:
    for index, one in enumerate(sockets):
        batch = b"".join(_ID.pack(n) for n in numbers if n % WORKERS == index)
        if batch:
            one.sendall(batch)


def _receive(sockets: list[socket.socket]) -> list[int]:
    ready, _, _ = select(sockets, [], [])
    return [n for one in ready for (n,) in _ID.iter_unpack(_whole(one))]


def _whole(one: socket.socket) -> bytes:
    """What has arrived, to the end of the last number."""
    data = one.recv(1 << 16)
    while len(data) % _ID.size:
        data += one.recv(_ID.size - len(data) % _ID.size)
    return data


@contextmanager
def _workers() -> Iterator[list[socket.socket]]:
    pairs = [socket.socketpair() for _ in range(WORKERS)]
    children = [_fork(mine, theirs) for mine, theirs in pairs]
    try:
        yield [mine for mine, _ in pairs]
    finally:
        for mine, _ in pairs:
            mine.shutdown(socket.SHUT_RDWR)  # Closing is not enough: later forks have copies.
            mine.close()
        for pid in children:
            os.waitpid(pid, 0)


def _fork(mine: socket.socket, theirs: socket.socket) -> int:
    pid = os.fork()
    if pid:
        theirs.close()
        return pid
    mine.close()
    while data := theirs.recv(1 << 16):
        for offset in range(0, len(data), _ID.size):
            _noop(offset)
        theirs.sendall(data)
    os._exit(0)


def _noop(_: int) -> None:
    """What every side runs."""


def ray_us(num_tasks: int) -> float:
    """Wall microseconds per Ray task."""
    ray = _peer("ray")
    ray.init(num_cpus=WORKERS, include_dashboard=False, logging_level=ERROR, log_to_driver=False)
    try:
        task = ray.remote(_noop)
        ray.get([task.remote(n) for n in range(200)])
        began = perf_counter()
        ray.get([task.remote(n) for n in range(num_tasks)])
        return 1e6 * (perf_counter() - began) / num_tasks
    finally:
        ray.shutdown()


def dask_us(num_tasks: int) -> float:
    """Wall microseconds per Dask task."""
    dask = _peer("distributed")
    with (
        dask.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        dask.Client(cluster) as client,
    ):
        client.gather(client.map(_noop, range(200), pure=False))
        began = perf_counter()
        client.gather(client.map(_noop, range(num_tasks), pure=False))
        return 1e6 * (perf_counter() - began) / num_tasks


def _peer(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        fix = "pip install 'artangram[peers]', or --no-peers"
        raise BadInput("peers", f"{module} is not installed", fix) from None
