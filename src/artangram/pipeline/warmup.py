"""A model that speaks the tasks' language and chooses at random: where learning by reward begins.

The same tasks, words and settings give the same model, so it is made once and kept.
"""

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec

from artangram.envs.tasks import Dialogue, Teachable
from artangram.models.config import ModelConfig
from artangram.models.directory import save_model
from artangram.models.llama import Llama
from artangram.models.tokenizer import ASSISTANT, USER, Message, Tokenizer
from artangram.models.vocabulary import Vocabulary
from artangram.pipeline.demonstrations import conversation
from artangram.train.warmup import Demonstration, WarmupSettings, imitate

MAX_CONTEXT = 96


def rendered(dialogue: Dialogue, tokenizer: Tokenizer) -> Demonstration:
    """A dialogue as a session would have recorded it; the replies are imitated."""
    turns = ((Message(USER, saw), Message(ASSISTANT, said)) for saw, said in dialogue.turns)
    return conversation([message for turn in turns for message in turn], tokenizer)


def demonstrations(
    tasks: Sequence[Teachable], tokenizer: Tokenizer, *, seed: int
) -> Iterator[Demonstration]:
    """Without end; longer attempts are shown more often, for there is more to learn in them."""
    chance = Random(seed)
    # Another seed than the run's: what is shown and what is trained on are drawn apart.
    problems = {task.name: task.problems(seed + 1_000_003) for task in tasks}
    weights = [task.max_turns for task in tasks]
    while True:
        (task,) = chance.choices(tasks, weights)
        dialogue = task.demonstrate(next(problems[task.name]), chance=chance)
        yield rendered(dialogue, tokenizer)


def warm_model(
    directory: Path,
    *,
    tasks: Sequence[Teachable],
    vocabulary: Vocabulary,
    seed: int,
    settings: WarmupSettings | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> Path:
    """Where the warm model lies; it is made if it is not there yet."""
    import torch

    settings = settings or WarmupSettings()
    place = directory / _key(tasks, vocabulary, settings, seed)
    if place.exists():
        return place
    torch.set_num_threads(1)
    config = ModelConfig(
        vocab_size=vocabulary.vocab_size, max_context=MAX_CONTEXT, eos_id=vocabulary.eos_id
    )
    model = Llama(config, seed=seed)
    shown = demonstrations(tasks, vocabulary, seed=seed)
    imitate(model, shown, settings=settings, on_step=on_step)
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory, prefix=".unfinished-") as unfinished:
        made = Path(unfinished) / "model"
        save_model(model, made)
        vocabulary.save(made)
        made.rename(place)
    return place


def _key(
    tasks: Sequence[Teachable], vocabulary: Vocabulary, settings: WarmupSettings, seed: int
) -> str:
    names = sorted(task.name for task in tasks)
    shown = [
        msgspec.json.encode(next(demonstrations([task], vocabulary, seed=seed))) for task in tasks
    ]
    said = repr((names, vocabulary.vocab_size, msgspec.json.encode(settings), seed, shown))
    return "warm-" + sha256(said.encode()).hexdigest()[:12]
