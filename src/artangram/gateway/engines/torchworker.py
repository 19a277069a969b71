"""The loop of an embedded engine: hear orders, take a step, tell what was sampled.

It knows no asyncio: its owner may be in this process or in another one. When there is nothing to
do it waits for orders and uses no core.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from artangram.core.errors import BadInput
from artangram.gateway.engines.torchbatch import DecodeBatch
from artangram.gateway.engines.torchwire import (
    Abort,
    Add,
    CommandDone,
    CommandRefused,
    EngineReady,
    LeaveEngine,
    Load,
    News,
    Order,
    Pause,
    PingEngine,
    Read,
    Resume,
    StatsReply,
    TorchEngineSettings,
)
from artangram.models.directory import load_causal, load_weights

TELL_EVERY_S = 0.02
"""Tokens are told together: whoever hears each one by itself has no time for anything else."""


class ClientChannel(Protocol):
    """The way to the owner."""

    def orders(self, *, wait: bool) -> Sequence[Order]:
        """What was ordered since; with `wait`, at least one; last, `LeaveEngine`."""
        ...

    def tell(self, news: Sequence[News]) -> None: ...


def a_batch(settings: TorchEngineSettings) -> DecodeBatch:
    """Load the model. Raises `BadInput` when there is none."""
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

    def __init__(self, batch: DecodeBatch, channel: ClientChannel) -> None:
        self._batch = batch
        self._channel = channel
        self._is_paused = False
        self._told_at = 0.0

    def run(self) -> None:
        """Work until told to leave."""
        batch = self._batch
        ready = EngineReady(batch.max_context, batch.vocab_size, batch.cache_kind)
        self._channel.tell([ready, self._stats()])
        while self._obey():
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
        if news or is_due:  # Reading a long prompt is no news, but its owner sees that it moves.
            self._channel.tell([*news, self._stats()])

    def _obey(self) -> bool:
        """Carry out what was ordered; false when that was to leave."""
        orders = self._channel.orders(wait=self._has_to_wait)
        news: list[News] = []
        for order in orders:
            if isinstance(order, LeaveEngine):
                return False
            news += self._carried_out(order)
        if orders:
            self._channel.tell([self._stats(), *news])
        return True

    def _carried_out(self, order: Order) -> Sequence[News]:
        match order:
            case Add(stream, request, cache):
                self._batch.add(stream, request, cache=cache)
            case Read(stream, request, path):
                self._batch.read(stream, request, path=Path(path))
            case Abort(stream):
                return self._batch.abort(stream)
            case Pause(number):
                self._is_paused = True
                return [*self._batch.fresh(), CommandDone(number)]
            case Resume(number):
                self._is_paused = False
                return [CommandDone(number)]
            case PingEngine(number):
                return [CommandDone(number)]
            case Load(number):
                return self._loaded(order)
        return []

    def _loaded(self, order: Load) -> list[News]:
        told: list[News] = [*self._batch.fresh()]
        try:
            self._batch.load(order.version, load_weights(Path(order.path)))
        except BadInput as error:
            return [*told, CommandRefused(order.number, str(error))]
        return [*told, CommandDone(order.number)]

    def _stats(self) -> StatsReply:
        return StatsReply(self._batch.stats(is_paused=self._is_paused))
