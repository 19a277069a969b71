"""One process of a trainer that is several: `python -m artangram.train.rank FD`.

The connection at that descriptor is its only tie: what to train comes first, then orders. When the
other end is gone, it ends.
"""

import sys
from multiprocessing.connection import Connection
from pathlib import Path

import torch.distributed as dist

from artangram.core.errors import BadInput
from artangram.train.backend import DataParallel, Sharded
from artangram.train.placing import placed
from artangram.train.rankwire import (
    Answer,
    Begin,
    Order,
    RankDone,
    RankRefused,
    Restore,
    Save,
    SaveWeights,
    TrainStep,
    Unwritten,
    begin_of,
    encode,
    order_of,
)
from artangram.train.tally import StepMetrics
from artangram.train.trainer import Trainer

TALK = {"cpu": "gloo", "cuda": "nccl"}
"""How processes with weights there speak to each other."""


def joined(begin: Begin) -> Trainer:
    """This process's trainer, once all of them have met."""
    settings = begin.settings
    dist.init_process_group(
        TALK[settings.device],
        init_method=f"file://{begin.meeting}",
        rank=begin.rank,
        world_size=settings.processes,
    )
    backend = Sharded() if settings.backend == "fsdp" else DataParallel()
    model = placed(Path(begin.model), settings.device, seed=begin.seed, index=begin.rank)
    return Trainer(model, settings, backend=backend)


def obeyed(trainer: Trainer, order: Order) -> StepMetrics | None:
    """Do it; a step has a report."""
    match order:
        case TrainStep(groups):
            return trainer.step(groups)
        case Save(directory):
            trainer.save(Path(directory))
        case SaveWeights(directory):
            trainer.save_weights(Path(directory))
        case Restore(directory):
            trainer.restore(Path(directory))
    return None


def serve(owner: Connection) -> None:
    """Answer until the owner is gone."""
    trainer: Trainer | None = None
    while (message := _heard(owner)) is not None:
        try:
            report = None
            if trainer is None:
                trainer = joined(begin_of(message))
            else:
                report = obeyed(trainer, order_of(message))
            answer: Answer = RankDone(
                version=trainer.version, max_context=trainer.max_context, report=report
            )
        except BadInput as error:
            answer = RankRefused(error.field, error.problem, error.fix)
        except OSError as error:
            answer = Unwritten(error.errno or 0, error.strerror or str(error))
        owner.send_bytes(encode(answer))


def _heard(owner: Connection) -> bytes | None:
    """The next message; `None` when the owner is gone."""
    try:
        return owner.recv_bytes()
    except (EOFError, ConnectionError):
        return None


def main() -> None:
    with Connection(int(sys.argv[1])) as owner:
        serve(owner)


if __name__ == "__main__":
    main()
