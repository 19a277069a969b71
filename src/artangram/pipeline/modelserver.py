"""A model behind the gateway's interfaces over HTTP, for agents that belong to no run."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from artangram.gateway.http.server import application, serving
from artangram.models.loading import load_tokenizer
from artangram.pipeline.enginepools import EnginesSpec
from artangram.pipeline.evaluation import served

logger = logging.getLogger(__name__)


@asynccontextmanager
async def model_served(
    model: Path, engines: EnginesSpec, *, token: str, host: str, port: int, log: Path
) -> AsyncIterator[str]:
    """Serve the model of a directory while the block lasts, under the directory's name; gives the
    address. Engines that die are started again."""
    tokenizer = await asyncio.to_thread(load_tokenizer, model)
    async with served(model, engines, log=log) as (gateway, failed):
        failed.add_done_callback(_tell_of)
        app = application(gateway, tokenizer=tokenizer, model=model_name(model), token=token)
        async with serving(app, host=host, port=port) as url:
            yield url


def model_name(model: Path) -> str:
    """Under which callers ask for it."""
    return model.resolve().name


def _tell_of(failed: "asyncio.Future[Any]") -> None:
    if not failed.cancelled() and (error := failed.exception()) is not None:
        logger.error("the model is not served any more: %s", error)
