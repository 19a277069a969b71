"""The process of one replica: hears what it is, loads its model, answers batch after batch.

Told to drop its model, it says how much memory that left behind, and waits to hear what it is next.
It ends with its host: when the connection closes, when the zygote ends, or when it is killed. Out
of memory it says so and exits: the model may be in any state then.
"""

import gc
import math
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from artangram.core.errors import BadInput
from artangram.link import BlockingLink, IncomingAsk, LinkEnded
from artangram.services import linux, wire
from artangram.services.devices import PredictFailed
from artangram.services.loading import Predict, answers, imported, loaded

Ask = IncomingAsk[wire.Request]


def live(connection: socket.socket, number: int) -> int:
    """Be a replica; returns its exit code. A `forkserver.zygote.Target`."""
    try:
        with BlockingLink.accepted(connection, wire.replica_terms, patience_s=math.inf) as link:
            began_with: ProcessBaseline | None = None
            while True:
                began_with, dropping = _lived(_next(link), link, began_with)
                dropping.answer(_left_mb(began_with))
                del dropping
    except LinkEnded:
        return 0
    except Over as over:
        return over.exit_code


class Over(Exception):
    """This process cannot go on; its host has heard why."""

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code


@contextmanager
def _telling(asked: Ask) -> Iterator[None]:
    """Tell the asker what makes this process end."""
    try:
        yield
    except BadInput as error:
        asked.refuse(error)
        raise Over(0) from None
    except MemoryError as error:
        asked.refuse(MemoryError(str(error)[:200]))
        raise Over(wire.OUT_OF_MEMORY) from None


def _next(link: BlockingLink[wire.Request]) -> Ask:
    asked = link.receive()
    assert isinstance(asked, IncomingAsk), "a host only asks"
    return asked


class ProcessBaseline(NamedTuple):
    """What a process has before its first model: what libraries take is the program's."""

    data_mb: float
    resident_mb: float
    anonymous_mb: float
    shared_mb: float

    @classmethod
    def now(cls) -> "ProcessBaseline":
        fields = ("VmData", "VmRSS", "RssAnon", "RssShmem")
        return cls(*(linux.status_mb(field) for field in fields))


def _lived(
    asked: Ask, link: BlockingLink[wire.Request], began_with: ProcessBaseline | None
) -> tuple[ProcessBaseline, Ask]:
    """Be one replica until its model is to be dropped.

    When this returns, nothing here holds the model any more.
    """
    spec = asked.record
    assert isinstance(spec, wire.ReplicaSpec), "a host says first what to be"
    with _telling(asked):
        _settle(spec)
        predict, began_with, found = _begun(spec, began_with)
    asked.answer(found)
    if not spec.may_follow:  # Else its cycles could not be collected when it goes.
        gc.collect()
        gc.freeze()
    while not isinstance((asked := _next(link)).record, wire.Drop):
        assert isinstance(asked.record, wire.Predict), "it is a replica already"
        with _telling(asked):
            asked.answer(answers(predict, asked.record.items))
    return began_with, asked


def _left_mb(began_with: ProcessBaseline) -> float:
    """What models of the past still hold of memory, or the allocator keeps."""
    gc.collect()
    left_mb = _more_mb(began_with)
    if left_mb > wire.MOST_LEFT_MB:
        linux.trim_heap()
        left_mb = _more_mb(began_with)
    return left_mb


def _more_mb(began_with: ProcessBaseline) -> float:
    now = ProcessBaseline.now()
    return now.anonymous_mb - began_with.anonymous_mb + now.shared_mb - began_with.shared_mb


def _begun(
    spec: wire.ReplicaSpec, began_with: ProcessBaseline | None
) -> tuple[Predict, ProcessBaseline, wire.Loaded]:
    """Load. Raises `BadInput` if the loader is no good."""
    began = time.perf_counter()
    loader, is_forkable = imported(spec.loader)
    began_with = began_with or ProcessBaseline.now()
    _limit(spec, began_with)
    options = msgspec.json.decode(spec.options)
    predict = loaded(loader, spec.files, options=options, device=spec.device)
    load_s = time.perf_counter() - began
    cost = None if spec.example is None else _tried(predict, spec)
    used_mb = _grown_mb(began_with) if spec.device == "cpu" else _on_device_mb()
    return predict, began_with, wire.Loaded(load_s, max(1, round(used_mb)), is_forkable, cost)


def _grown_mb(began_with: ProcessBaseline) -> float:
    """The most that its model has made of this process."""
    data_mb = linux.status_mb("VmData") - began_with.data_mb
    return max(data_mb, linux.status_mb("VmHWM") - began_with.resident_mb)


def _settle(spec: wire.ReplicaSpec) -> None:
    """Before anything is imported that looks around."""
    os.environ.update(spec.environ)
    os.environ["OMP_NUM_THREADS"] = str(spec.threads)
    if spec.cores:
        os.sched_setaffinity(0, spec.cores)


def _limit(spec: wire.ReplicaSpec, began_with: ProcessBaseline) -> None:
    """As many threads and as much memory as it may have."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(spec.threads)
    if spec.device == "cpu":
        linux.limit_data(began_with.data_mb + spec.limit_mb)
    else:
        _limit_devices(spec.limit_mb)


def _limit_devices(limit_mb: int) -> None:
    """By torch: the kernel knows nothing of a GPU's memory."""
    import torch

    for index in range(torch.cuda.device_count()):
        total = torch.cuda.get_device_properties(index).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_mb * 2**20 / total), index)


def _on_device_mb() -> float:
    """The most this process has had on any of its GPUs."""
    import torch

    each = (torch.cuda.max_memory_reserved(n) for n in range(torch.cuda.device_count()))
    return max(each, default=0) / 2**20


def _tried(predict: Predict, spec: wire.ReplicaSpec) -> float | None:
    """Answer the example as often as a batch holds; what every further one of them adds."""
    assert spec.example is not None
    batch = [spec.example] * spec.batch
    _answer_s(predict, batch[:1])  # The first answer of a model takes longer than those after it.
    alone_s, together_s = _answer_s(predict, batch[:1]), _answer_s(predict, batch)
    return batch_cost(alone_s, together_s, size=spec.batch) if spec.batch > 1 else None


def batch_cost(alone_s: float, together_s: float, *, size: int) -> float:
    """What every further payload adds to the time of the first: nothing to as much again."""
    return min(1.0, max(0.0, together_s / alone_s - 1.0) / (size - 1))


def _answer_s(predict: Predict, items: list[bytes]) -> float:
    began = time.perf_counter()
    for answer in answers(predict, items):
        if isinstance(answer, PredictFailed):
            fix = "correct the model or the example"
            raise BadInput("example", f"was not answered: {answer.problem}", fix)
    return time.perf_counter() - began
