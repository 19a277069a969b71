"""A trainer of your own around the rollout: here REINFORCE, with the tokens as they were sampled.

`python warm_guessing.py` makes the model it begins with.
"""

import asyncio
import tempfile
from pathlib import Path

import torch
from guessing import Guessing

from artangram.gateway import Gateway
from artangram.gateway.engines.torchprocess import TorchEngineProcess
from artangram.gateway.engines.torchwire import TorchEngineSettings
from artangram.models.causal import score
from artangram.models.directory import load_model, save_model
from artangram.models.loading import load_tokenizer
from artangram.rollout import Plan, Rollout, Source, preset
from artangram.train.samples import attempt_samples, rows_of
from artangram.weights import WeightStore, roll, verified_pull

MODEL, STEPS = Path(__file__).parent / "models" / "guessing", 30


def learn(model, optimiser, batch):
    """One step; the mean reward. Everything a loss needs is in the trajectories."""
    samples = []
    for group in batch.groups:
        mean = sum(t.reward for t in group.trajectories) / len(group.trajectories)
        for one in group.trajectories:
            samples += attempt_samples(one, one.reward - mean)
    rows = rows_of(samples, version=batch.version)
    now = score(model, rows.packed, at=rows.at).logprobs
    loss = -((now - rows.behaviour).exp() * rows.advantages).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return sum(t.reward for t in batch.trajectories) / len(batch.trajectories)


async def main(folder):
    torch.set_num_threads(1)
    model, store = load_model(MODEL), WeightStore(folder)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine = await TorchEngineProcess.start(TorchEngineSettings(directory=str(MODEL)))
    gateway = Gateway()
    gateway.add(engine)
    plan = Plan(environments=48, group_size=8, staleness=preset("rollart"))
    tokenizer = load_tokenizer(MODEL)
    async with Rollout(
        Source([Guessing(None)]), gateway, plan=plan, tokenizer=tokenizer
    ) as rollout:
        versions = rollout.updates.versions
        for version in range(1, STEPS + 1):
            batch = await rollout.sink.batch(6)
            reward = await asyncio.to_thread(learn, model, optimiser, batch)
            rollout.settle(batch)
            store.publish_with(version, lambda directory: save_model(model, directory))
            rollout.announce(version)
            await roll(gateway, version, pull=verified_pull(store), versions=versions)
            rollout.go_live(version)
            print(f"step {version}: reward {reward:.2f}", flush=True)
    await gateway.aclose()
    await engine.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
