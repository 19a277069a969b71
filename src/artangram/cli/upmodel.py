"""The model that `artangram up` serves beside the cluster, if it is told one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from artangram.core.errors import BadInput

ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model", help="Serve the model of this directory, too, with the gateway's interfaces."
    ),
]
EnginesOption = Annotated[
    str,
    typer.Option(
        "--engines",
        help="Engines of the model: how many of our own, or a file, as a run's `engines`.",
    ),
]
ModelPort = Annotated[
    int,
    typer.Option("--model-port", help="Port of the model; 0 takes a free one.", min=0, max=65535),
]


class ModelOptions(Struct, frozen=True, kw_only=True):
    """What to serve, and where."""

    model: Path | None
    engines: str
    port: int

    @asynccontextmanager
    async def served(self, *, token: str, host: str, state_dir: Path) -> AsyncIterator[str]:
        """Serve the model while the block lasts; gives its address, empty without a model."""
        if self.model is None:
            yield ""
            return
        # torch takes a second to import, which clusters without a model do without.
        from artangram.config.train import engines_named
        from artangram.pipeline.modelserver import model_served

        if not (self.model / "config.json").exists():
            fix = "name a directory with config.json, weights and a tokenizer"
            raise BadInput("--model", f"{self.model} holds no model", fix)
        spec, log = engines_named(self.engines), state_dir / "engines.log"
        async with model_served(
            self.model, spec, token=token, host=host, port=self.port, log=log
        ) as url:
            yield url
