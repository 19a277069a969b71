"""Agents with clients of their own, trained from a run's file: every token is what was sampled."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch")

from artangram.config.train import check_tasks, made_tasks, read_train
from artangram.core.rollout.trajectory import TrajectoryStatus
from artangram.models.loading import load_tokenizer
from artangram.pipeline.agentserver import agent_gateway
from artangram.pipeline.evaluation import evaluate, served
from artangram.pipeline.loops import LOOPS
from artangram.pipeline.metrics import read
from artangram.pipeline.opening import open_training
from artangram.pipeline.settings import Exam
from integration.pipeline import agentwork

HERE = "integration.pipeline.agentwork"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _heard():
    agentwork.HEARD.clear()
    agentwork.COUNTED.clear()


def written(place: Path, model: Path, agents: dict[str, str], *, steps: int = 3) -> Path:
    """A run's file with a task for each agent; further keys of a task by its name."""
    tasks = "".join(
        f'  {name}: {{agent: "{HERE}:{name}", problems: "{HERE}:problems", '
        f'reward: "{HERE}:score"{keys}}}\n'
        for name, keys in agents.items()
    )
    path = place / "run.yaml"
    path.write_text(
        f"name: agents\nmodel: {model}\nsteps: {steps}\ngroups: {len(agents)}\n"
        "group_size: 4\nenvironments: 48\nretries: 0\ncheckpoint_every: 0\n"
        f"tasks:\n{tasks}"
        "train: {epochs: 2, min_samples: 1, lr: 1.0e-3}\n"
    )
    return path


async def trained(path: Path, out: Path, *, on_step=None):
    """The run of a file; the groups that its trainer learned from, and the run's records."""
    spec = read_train(path)
    check_tasks(path, spec)
    seen = []

    def keep(groups):
        seen.extend(groups)
        return groups

    async with open_training(
        spec.run,
        tasks=made_tasks(spec, None, job=spec.run.name),
        model=spec.model,
        out=out,
        engines=spec.engines,
        stages=spec.stages,
        reshape=keep,
    ) as training:
        await LOOPS[spec.run.mode](training)
    return seen, read(out / "metrics.jsonl")


def sampled_in(trajectory):
    """The sampled segments of each conversation."""
    return [[one for one in line if one.is_sampled] for line in trajectory.conversations]


def exactly_what_was_sampled(groups, records):
    """Each trained token was sampled once, with its logprob and version, and heard by the agent."""
    assert max(record.report.fresh_error for record in records) < 1e-4
    assert any(record.report.version > 1 for record in records)
    heard = Counter(frozenset(Counter(found).items()) for found in agentwork.HEARD.values())
    for trajectory in (t for group in groups for t in group.trajectories):
        segments = [one for line in sampled_in(trajectory) for one in line]
        for segment in segments:
            assert len(segment.logprobs) == len(segment.token_ids)
            covered = [place for span in segment.spans for place in range(span.start, span.end)]
            assert covered == list(range(len(segment.token_ids)))
        if trajectory.task in ("responding", "messaging"):
            assert [len(one.token_ids) for one in segments] in agentwork.COUNTED.values()
            continue
        # All that one attempt heard, each answer as often as it was sampled.
        heard[frozenset(Counter(one.token_ids for one in segments).items())] -= 1
    assert min(heard.values()) >= 0, "an attempt was trained on that no agent has made"


AGENTS = {
    "once": [1],
    "turns": [3],
    "blocking": [1],
    "delegating": [2, 1, 1],
    "compacting": [2, 1],
    "stripping": [1, 1],
    "cool": [2],
    "forcing": [2],
    "responding": [2],
    "messaging": [2],
}
"""And how many turns each conversation of theirs has."""


def with_room(model: Path, place: Path) -> Path:
    """The same model with a longer context, for prompts that describe tools."""
    found = Path(shutil.copytree(model, place / "roomy"))
    config = json.loads((found / "config.json").read_text())
    (found / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}))
    return found


async def test_agents_are_trained_on_the_very_tokens_they_were_given(model, tmp_path):
    path = written(tmp_path, with_room(model, tmp_path), dict.fromkeys(AGENTS, ""))
    groups, records = await trained(path, tmp_path / "out")
    exactly_what_was_sampled(groups, records)
    trajectories = [t for group in groups for t in group.trajectories]
    assert len(trajectories) == 3 * len(AGENTS) * 4
    assert {t.status for t in trajectories} <= {TrajectoryStatus.OK, TrajectoryStatus.TRUNCATED}
    for trajectory in trajectories:
        turns = AGENTS[trajectory.task]
        # A reply of one word is the same when it is stripped.
        wanted = ([2], turns) if trajectory.task == "stripping" else (turns,)
        assert [len(line) for line in sampled_in(trajectory)] in wanted
        assert trajectory.turns == sum(turns)
        heat = [one.temperature for line in sampled_in(trajectory) for one in line]
        assert heat == ([0.5, 1.5] if trajectory.task == "cool" else [1.0] * len(heat))


async def test_an_exam_lets_an_agent_try_other_problems(model, tmp_path):
    keys = f', eval: {{problems: "{HERE}:few", agent: "{HERE}:blocking"}}'
    spec = read_train(written(tmp_path, model, {"once": keys}))
    tasks = made_tasks(spec, None, job="j", is_exam=True)
    tokenizer = load_tokenizer(spec.model)
    async with (
        served(spec.model, spec.engines, log=tmp_path / "log") as (endpoint, _),
        agent_gateway(tasks, endpoint, tokenizer=tokenizer, model="agents") as agents,
    ):
        exam = Exam(problems=12)
        found = await evaluate(tasks, endpoint, exam, tokenizer=tokenizer, agents=agents)
    assert (found.problems, found.failed) == (4, 0)
    assert len(agentwork.HEARD) == 4
