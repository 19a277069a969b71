"""The process of one replica: hears what it is, loads its model, answers batch after batch.

Told to drop its model, it says how much memory that left behind, and waits to hear what it is next.
It ends with its host: when the connection closes, when the zygote ends, or when it is killed. Out
of memory it says so and exits: the model may be in any state then.
"""

import gc
import os
import socket
import sys
import time
from typing import NamedTuple

import msgspec

from artangram.core.errors import BadInput
from artangram.services import linux, wire
from artangram.services.devices import PredictFailed
from artangram.services.loading import Predict, answers, imported, loaded


def live(connection: socket.socket, number: int) -> int:
    """Be a replica; returns its exit code. A `forkserver.zygote.Target`."""
    channel = wire.BlockingChannel(connection)
    specs = msgspec.msgpack.Decoder(wire.ReplicaSpec)
    began_with: Footing | None = None
    try:
        while (spec := channel.receive(specs)) is not None:
            _settle(spec)
            began_with = _lived(spec, channel, began_with)
            if began_with is None:
                return 0
            channel.send(wire.ModelDropped(_left_mb(began_with)))
        return 0
    except MemoryError as error:
        channel.send(wire.OutOfMemory(str(error)[:200]))
        return wire.OUT_OF_MEMORY


class Footing(NamedTuple):
    """What a process has before its first model: what libraries take is the program's."""

    data_mb: float
    resident_mb: float
    anonymous_mb: float
    shared_mb: float

    @classmethod
    def now(cls) -> "Footing":
        fields = ("VmData", "VmRSS", "RssAnon", "RssShmem")
        return cls(*(linux.status_mb(field) for field in fields))


def _lived(
    spec: wire.ReplicaSpec, channel: wire.BlockingChannel, began_with: Footing | None
) -> Footing | None:
    """Be one replica until its model is to be dropped; `None` if the process has to end.

    When this returns, nothing here holds the model any more.
    """
    begun = _begin(spec, channel, began_with)
    if begun is None:
        return None
    predict, began_with = begun
    orders = msgspec.msgpack.Decoder(wire.Request)
    while (order := channel.receive(orders)) is not None:
        match order:
            case wire.Predict(items):
                channel.send(wire.Answers(answers(predict, items)))
            case wire.Drop():
                return began_with
    return None


def _left_mb(began_with: Footing) -> float:
    """What models of the past still hold of memory, or the allocator keeps."""
    gc.collect()
    left_mb = _more_mb(began_with)
    if left_mb > wire.MOST_LEFT_MB:
        linux.trim_heap()
        left_mb = _more_mb(began_with)
    return left_mb


def _more_mb(began_with: Footing) -> float:
    now = Footing.now()
    return now.anonymous_mb - began_with.anonymous_mb + now.shared_mb - began_with.shared_mb


def _begin(
    spec: wire.ReplicaSpec, channel: wire.BlockingChannel, began_with: Footing | None
) -> tuple[Predict, Footing] | None:
    """Load, and say so; `None` if the loader is no good."""
    began = time.perf_counter()
    try:
        loader, is_forkable = imported(spec.loader)
        began_with = began_with or Footing.now()
        _limit(spec, began_with)
        options = msgspec.json.decode(spec.options)
        predict = loaded(loader, spec.files, options=options, device=spec.device)
        load_s = time.perf_counter() - began
        cost = None if spec.example is None else _tried(predict, spec)
    except BadInput as error:
        channel.send(wire.LoaderRefused(error.field, error.problem, error.fix))
        return None
    used_mb = _grown_mb(began_with) if spec.device == "cpu" else _on_device_mb()
    channel.send(wire.Loaded(load_s, max(1, round(used_mb)), is_forkable, cost))
    if not spec.may_follow:  # Else its cycles could not be collected when it goes.
        gc.collect()
        gc.freeze()
    return predict, began_with


def _grown_mb(began_with: Footing) -> float:
    """The most that its model has made of this process."""
    data_mb = linux.status_mb("VmData") - began_with.data_mb
    return max(data_mb, linux.status_mb("VmHWM") - began_with.resident_mb)


def _settle(spec: wire.ReplicaSpec) -> None:
    """Before anything is imported that looks around."""
    os.environ.update(spec.environ)
    os.environ["OMP_NUM_THREADS"] = str(spec.threads)
    if spec.cores:
        os.sched_setaffinity(0, spec.cores)


def _limit(spec: wire.ReplicaSpec, began_with: Footing) -> None:
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
