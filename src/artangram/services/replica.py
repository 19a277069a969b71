"""The process of one replica: hears what it is, loads its model, answers batch after batch.

It ends with its host: when the connection closes, when the zygote ends, or when it is killed. Out
of memory it says so and exits; nobody can tell what state the model is in then.
`python -m artangram.services.replica` is one without a zygote; whom to ask comes on stdin.
"""

import gc
import os
import signal
import socket
import sys
import time

import msgspec

from artangram.core.errors import BadInput
from artangram.services import linux, wire
from artangram.services.devices import Failed
from artangram.services.loading import Predict, answers, imported, loaded


def live(fork: wire.Fork, *, parent: int) -> int:
    """Be a replica; returns its exit code."""
    linux.end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Its host decides when it ends.
    channel = _connected(fork)
    try:
        birth = channel.receive(msgspec.msgpack.Decoder(wire.Birth))
        predict = None if birth is None else _begin(birth, channel)
        if predict is None:
            return 0
        orders = msgspec.msgpack.Decoder(wire.Predict)
        while (order := channel.receive(orders)) is not None:
            channel.send(wire.Answers(answers(predict, order.items)))
        return 0
    except MemoryError as error:
        channel.send(wire.OutOfMemory(str(error)[:200]))
        return wire.OUT_OF_MEMORY
    except ConnectionError:
        return 0  # The host is gone, and nobody waits for this.


def _connected(fork: wire.Fork) -> wire.Channel:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(fork.host)
    channel = wire.Channel(connection)
    channel.send(wire.Hello(fork.number, os.getpid()))
    return channel


def _begin(birth: wire.Birth, channel: wire.Channel) -> Predict | None:
    """Settle on the devices and load; `None` if the loader is no good."""
    began = time.perf_counter()
    _settle(birth)
    try:
        loader, is_forkable = imported(birth.loader)
        # From here on: what libraries take is the program's, what follows is the model's.
        data_mb, resident_mb = linux.status_mb("VmData"), linux.status_mb("VmRSS")
        _limit(birth)
        options = msgspec.json.decode(birth.options)
        predict = loaded(loader, birth.files, options=options, device=birth.device)
        load_s = time.perf_counter() - began
        cost = None if birth.example is None else _tried(predict, birth)
    except BadInput as error:
        channel.send(wire.Refused(error.field, error.problem, error.fix))
        return None
    grown = linux.status_mb("VmData") - data_mb, linux.status_mb("VmHWM") - resident_mb
    used_mb = max(grown) if birth.device == "cpu" else _on_device_mb()
    channel.send(wire.Loaded(load_s, max(1, round(used_mb)), is_forkable, cost))
    gc.collect()
    gc.freeze()
    return predict


def _settle(birth: wire.Birth) -> None:
    """Before anything is imported that looks around."""
    os.environ.update(birth.environ)
    os.environ["OMP_NUM_THREADS"] = str(birth.threads)
    if birth.cores:
        os.sched_setaffinity(0, birth.cores)


def _limit(birth: wire.Birth) -> None:
    """As many threads and as much memory as it may have."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(birth.threads)
    if birth.device == "cpu":
        linux.limit_data(birth.limit_mb)
    else:
        _limit_devices(birth.limit_mb)


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


def _tried(predict: Predict, birth: wire.Birth) -> float | None:
    """Answer the example as often as a batch holds; what every further one of them adds."""
    assert birth.example is not None
    batch = [birth.example] * birth.batch
    _answer_s(predict, batch[:1])  # The first answer of a model takes longer than those after it.
    alone_s, together_s = _answer_s(predict, batch[:1]), _answer_s(predict, batch)
    return batch_cost(alone_s, together_s, size=birth.batch) if birth.batch > 1 else None


def batch_cost(alone_s: float, together_s: float, *, size: int) -> float:
    """What every further payload adds to the time of the first: nothing to as much again."""
    return min(1.0, max(0.0, together_s / alone_s - 1.0) / (size - 1))


def _answer_s(predict: Predict, items: list[bytes]) -> float:
    began = time.perf_counter()
    for answer in answers(predict, items):
        if isinstance(answer, Failed):
            fix = "correct the model or the example"
            raise BadInput("example", f"was not answered: {answer.problem}", fix)
    return time.perf_counter() - began


def main() -> None:
    fork = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=wire.Fork)
    sys.exit(live(fork, parent=os.getppid()))


if __name__ == "__main__":
    main()
