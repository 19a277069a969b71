"""How fast does the embedded engine sample, and does the trainer compute the same logprobs?

- Tokens per second of wall time, requests of 32 tokens answered by 60, all of them at once.
- A change of weights is `pause`, `load`, `resume` while as many requests run; they all go on.
- The ratio is exp(scored - told) of every token at staleness 0; anything but 1 is a defect.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from artangram.cli.output import Printer
from artangram.gateway.engines.protocol import Engine, EngineRequest, Sampling, TokenChunk
from artangram.gateway.engines.torchprocess import TorchEngineProcess
from artangram.gateway.engines.torchwire import TorchEngineSettings
from artangram_bench.result import Origin

if TYPE_CHECKING:
    from artangram.models.llama import Llama

PROMPT_TOKENS = 32
ANSWER_TOKENS = 60
CONTEXT = 160
VOCAB_SIZE = 64
SIZES = {"small": (64, 2, 2), "medium": (96, 3, 3), "large": (128, 4, 4)}
"""Width, layers and heads."""

CONCURRENCIES = (1, 16, 64)
A_MOMENT_S = 0.02
"""All requests run by then, and none has ended."""


class Cell(Struct, frozen=True, kw_only=True):
    size: str
    parameters: int
    where: str
    concurrency: int
    tokens_per_s: list[float]
    """One figure a round."""
    update_ms: list[float]
    """Changes of weights while that many requests run."""
    worst_ratio: float
    """The one that differs most from 1."""


class _Answer(Struct):
    prompt: tuple[int, ...]
    token_ids: list[int]
    logprobs: list[float]


def engine_verb(
    rounds: Annotated[int, typer.Option(help="Rounds of every measurement.", min=1)] = 3,
    json: Annotated[str | None, typer.Option(help="Write the result here; - is stdout.")] = None,
) -> None:
    """Tokens per second, the time of a change of weights, the ratio at staleness 0."""
    output, origin = Printer(json), Origin()
    with output.progress() as progress, tempfile.TemporaryDirectory() as folder:
        progress.add_task("engine")
        cells = asyncio.run(_cells(Path(folder), rounds))
    _print(output, cells)
    output.json(origin.result("How fast does the embedded engine sample?", cells))


async def _cells(folder: Path, rounds: int) -> list[Cell]:
    import torch

    from artangram.gateway.engines.torchengine import TorchEngine

    torch.set_num_threads(1)
    cells: list[Cell] = []
    for size in SIZES:
        model = _saved_model(size, folder / size)
        settings = TorchEngineSettings(directory=str(folder / size))
        for engine in (
            await TorchEngineProcess.start(settings, name="process"),
            await TorchEngine.start(settings, name="thread"),
        ):
            run = _Run(engine, model, folder / size)
            await run.answers(1)  # The first step of all takes longer.
            for concurrency in CONCURRENCIES:
                cells.append(await run.cell(size, concurrency, rounds=rounds))
            await engine.aclose()
    return cells


def _saved_model(size: str, directory: Path) -> "Llama":
    from artangram.models.config import ModelConfig
    from artangram.models.directory import save_model
    from artangram.models.llama import Llama

    width, layers, heads = SIZES[size]
    config = ModelConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        intermediate_size=5 * width // 2,
        max_context=CONTEXT,
    )
    model = Llama(config)
    save_model(model, directory)
    return model


class _Run:
    """One engine and the model it samples."""

    def __init__(self, engine: Engine, model: "Llama", directory: Path) -> None:
        self._engine = engine
        self._model = model
        self._directory = directory

    async def cell(self, size: str, concurrency: int, *, rounds: int) -> Cell:
        speeds, updates, ratios = [], [], [1.0]
        for _ in range(rounds):
            began_at = time.perf_counter()
            answers = await self.answers(concurrency)
            speeds.append(concurrency * ANSWER_TOKENS / (time.perf_counter() - began_at))
            ratios += self._ratios(answers)
            updates.append(await self._update_ms(concurrency))
        return Cell(
            size=size,
            parameters=sum(parameter.numel() for parameter in self._model.parameters()),
            where=self._engine.name,
            concurrency=concurrency,
            tokens_per_s=speeds,
            update_ms=updates,
            worst_ratio=max(ratios, key=lambda ratio: abs(ratio - 1)),
        )

    async def answers(self, concurrency: int) -> list[_Answer]:
        return await asyncio.gather(*(self._answer(number) for number in range(concurrency)))

    async def _answer(self, number: int) -> _Answer:
        prompt = tuple((number + place) % VOCAB_SIZE for place in range(PROMPT_TOKENS))
        found = _Answer(prompt, [], [])
        sampling = Sampling(max_tokens=ANSWER_TOKENS)
        request = EngineRequest(id=str(number), prompt=prompt, sampling=sampling)
        async for item in self._engine.stream(request):
            if isinstance(item, TokenChunk):
                found.token_ids += item.token_ids
                found.logprobs += item.logprobs
        return found

    async def _update_ms(self, concurrency: int) -> float:
        """How long nothing is sampled when the same weights come as another version."""
        running = asyncio.create_task(self.answers(concurrency))
        await asyncio.sleep(A_MOMENT_S)
        began_at = time.perf_counter()
        await self._engine.pause()
        await self._engine.load(self._engine.stats().version + 1, self._directory)
        await self._engine.resume()
        elapsed_s = time.perf_counter() - began_at
        await running
        return 1000 * elapsed_s

    def _ratios(self, answers: list[_Answer]) -> list[float]:
        import torch

        from artangram.models.causal import score
        from artangram.models.packed import pack

        packed = pack([[*answer.prompt, *answer.token_ids] for answer in answers])
        with torch.no_grad():
            at = (packed.positions >= PROMPT_TOKENS).nonzero().squeeze(1)
            scored = score(self._model, packed, at=at).logprobs
            told = torch.tensor([logprob for answer in answers for logprob in answer.logprobs])
            ratios: list[float] = (scored - told).exp().tolist()
        return ratios


def _print(output: Printer, cells: list[Cell]) -> None:
    output.table(
        f"Prompts of {PROMPT_TOKENS} tokens, answers of {ANSWER_TOKENS}, best round",
        ["model", "where", "at once", "tokens/s", "update ms", "|ratio - 1|"],
        [
            [
                f"{cell.parameters / 1e6:.2f} M",
                cell.where,
                str(cell.concurrency),
                f"{max(cell.tokens_per_s):,.0f}",
                f"{min(cell.update_ms):.1f}",
                f"{abs(cell.worst_ratio - 1):.0e}",
            ]
            for cell in cells
        ],
    )
