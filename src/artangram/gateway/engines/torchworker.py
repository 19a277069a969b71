"""The loop of an embedded engine: hear commands, take a step, tell what was sampled.

It knows no asyncio: its client may be in this process or in another one. When it is idle
it waits for commands and uses no core. `python -m artangram.gateway.engines.torchworker FD` is a
process for it: the socket at that descriptor is its only tie, and when the other end is gone,
however that came, it ends.
"""

import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from artangram.core.errors import BadInput
from artangram.gateway.engines.torchbatch import DecodeBatch
from artangram.gateway.engines.torchwire import (
    Abort,
    Add,
    EngineCommand,
    EngineReady,
    Load,
    News,
    OpenEngine,
    Pause,
    Read,
    Resume,
    StatsReply,
    TorchEngineSettings,
    WorkerFailed,
    worker_terms,
)
from artangram.link import BlockingLink, IncomingAsk, LinkEnded
from artangram.models.directory import load_causal, load_weights

TELL_EVERY_S = 0.02
"""Tokens are told together: a client that hears each one alone has no time for anything else."""


def a_batch(settings: TorchEngineSettings) -> DecodeBatch:
    """Load the model. Raises `BadInput` if the directory has none."""
    model = load_causal(Path(settings.directory))
    return DecodeBatch(
        model,
        settings.num_slots,
        max_context=settings.max_context or model.max_context,
        version=settings.version,
        seed=settings.seed,
    )


class TorchWorker:
    """See the module."""

    def __init__(self, batch: DecodeBatch, link: BlockingLink[EngineCommand]) -> None:
        self._batch = batch
        self._link = link
        self._is_paused = False
        self._told_at = 0.0

    def run(self) -> None:
        """Work until the link ends, which raises `LinkEnded`."""
        self._link.tell([self._stats()])
        while True:
            self._obey()
            if not self._has_to_wait:
                self._step()

    @property
    def _has_to_wait(self) -> bool:
        return self._is_paused or self._batch.is_idle

    def _step(self) -> None:
        news: list[News] = [*self._batch.step()]
        if is_due := (now := time.monotonic()) - self._told_at >= TELL_EVERY_S:
            news += self._batch.fresh()
            self._told_at = now
        if news or is_due:  # Reading a long prompt is no news, but its client sees that it moves.
            self._link.tell([*news, self._stats()])

    def _obey(self) -> None:
        """Carry out what came; wait for it if there is nothing else to do."""
        news: list[News] = []
        heard = self._link.receive(None if self._has_to_wait else 0.0)
        if heard is None:
            return
        while heard is not None:
            if isinstance(heard, IncomingAsk):
                self._answer(heard, news)
                news = []
            else:
                news += self._carried_out(heard)
            heard = self._link.receive(0.0)
        self._link.tell([self._stats(), *news])

    def _answer(self, asked: IncomingAsk[EngineCommand], news: list[News]) -> None:
        """Answer after all that was sampled before has been told."""
        news += self._batch.fresh()
        try:
            match asked.record:
                case Pause():
                    self._is_paused = True
                case Resume():
                    self._is_paused = False
                case Load(version, path):
                    self._batch.load(version, load_weights(Path(path)))
        except BadInput as error:
            self._link.tell(news)
            asked.refuse(error)
        else:
            self._link.tell([self._stats(), *news])
            asked.answer()

    def _carried_out(self, command: EngineCommand) -> Sequence[News]:
        match command:
            case Add(stream, request, cache):
                self._batch.add(stream, request, cache=cache)
            case Read(stream, request, path):
                self._batch.read(stream, request, path=Path(path))
            case Abort(stream):
                return self._batch.abort(stream)
        return []

    def _stats(self) -> StatsReply:
        return StatsReply(self._batch.stats(is_paused=self._is_paused))


def serve(sock: socket.socket, *, is_alone: bool = False) -> None:
    """Be the worker at this end of `sock` until the other one is gone."""
    try:
        with BlockingLink.accepted(sock, worker_terms) as link:
            if (batch := _opened(link, is_alone=is_alone)) is not None:
                _work(batch, link)
    except LinkEnded:
        pass


def _opened(link: BlockingLink[EngineCommand], *, is_alone: bool) -> DecodeBatch | None:
    asked = link.receive()
    assert isinstance(asked, IncomingAsk), "it begins with an ask"
    assert isinstance(asked.record, OpenEngine), "it begins with settings"
    settings = asked.record.settings
    if is_alone:
        torch.set_num_threads(settings.num_threads)
    try:
        batch = a_batch(settings)
    except BadInput as error:
        asked.refuse(error)
        return None
    asked.answer(EngineReady(batch.max_context, batch.vocab_size, batch.cache_kind))
    return batch


def _work(batch: DecodeBatch, link: BlockingLink[EngineCommand]) -> None:
    try:
        TorchWorker(batch, link).run()
    except LinkEnded:
        raise
    except Exception as error:
        # The client reports it to its callers; the traceback goes to stderr as well.
        link.tell([WorkerFailed(f"{type(error).__name__}: {error}")])
        raise


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), is_alone=True)
