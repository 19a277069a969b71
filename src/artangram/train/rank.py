"""One process of a trainer that is several: `python -m artangram.train.rank FD`.

The socket at that descriptor is its only tie: what to train comes first, then orders. When the
other end is gone, it ends.
"""

import socket
import sys
from pathlib import Path

import torch.distributed as dist

from artangram.core.errors import BadInput
from artangram.link import BlockingLink, IncomingAsk, LinkEnded
from artangram.train.backend import DataParallel, Sharded
from artangram.train.placing import placed
from artangram.train.rankwire import (
    Begin,
    Order,
    RankDone,
    Restore,
    Save,
    SaveWeights,
    TrainStep,
    rank_terms,
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
        case TrainStep(groups, teachers):
            return trainer.step(groups, teachers=teachers)
        case Save(directory):
            trainer.save(Path(directory))
        case SaveWeights(directory):
            trainer.save_weights(Path(directory))
        case Restore(directory):
            trainer.restore(Path(directory))
    return None


def serve(owner: BlockingLink[Order]) -> None:
    """Answer until the owner is gone."""
    trainer: Trainer | None = None
    while True:
        asked = owner.receive()
        assert isinstance(asked, IncomingAsk), "owners only ask"
        report = None
        try:
            if isinstance(asked.record, Begin):
                trainer = joined(asked.record)
            assert trainer is not None, "it begins with that"
            report = obeyed(trainer, asked.record)
        except (BadInput, OSError) as error:
            asked.refuse(error)
        else:
            done = RankDone(version=trainer.version, max_context=trainer.max_context, report=report)
            asked.answer(done)


def main() -> None:
    try:
        with BlockingLink.accepted(socket.socket(fileno=int(sys.argv[1])), rank_terms) as owner:
            serve(owner)
    except LinkEnded:
        pass


if __name__ == "__main__":
    main()
