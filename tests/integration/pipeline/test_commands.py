"""Commands in sandboxes, trained from a run's file: they reach the model and nothing else."""

import json
import sys
from pathlib import Path

import openai
import pytest

pytest.importorskip("torch", reason="training needs torch")

from artangram.config.train import check_tasks, made_tasks, read_train
from artangram.core.rollout.trajectory import TrajectoryStatus
from artangram.models.loading import load_tokenizer
from artangram.orchestrator.local import local
from artangram.pipeline.agentserver import agent_gateway
from artangram.pipeline.clusterclient import own_cluster
from artangram.pipeline.evaluation import evaluate, served
from artangram.pipeline.loops import LOOPS
from artangram.pipeline.metrics import read
from artangram.pipeline.opening import open_training
from artangram.pipeline.settings import Exam
from artangram.sandbox import IsolationLevel
from artangram.sandbox.probe import probe
from integration.pipeline import commandwork

HERE = "integration.pipeline.commandwork"
PACKAGES = str(Path(openai.__file__).parents[1])
SHOWN = sorted({sys.prefix, sys.base_prefix, PACKAGES} - {"/usr"})
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(probe().level < IsolationLevel.CGROUPS, reason="a proxy needs root"),
]


@pytest.fixture(autouse=True)
def _answers():
    commandwork.ANSWERS.clear()


def written(place: Path, model: Path, command: list[str], *, score: str = "score") -> Path:
    task = {
        "command": command,
        "shows": SHOWN,
        "problems": f"{HERE}:problems",
        "reward": f"{HERE}:{score}",
        "sandbox": {"memory_mb": 256},
    }
    path = place / "run.yaml"
    path.write_text(
        f"name: commands\nmodel: {model}\nsteps: 2\ngroups: 1\ngroup_size: 4\n"
        "environments: 8\nretries: 0\ncheckpoint_every: 0\n"
        f"tasks:\n  cli: {json.dumps(task)}\n"
        "train: {epochs: 2, min_samples: 1, lr: 1.0e-3}\n"
    )
    return path


async def test_a_command_is_trained_on_the_very_tokens_it_was_given(model, tmp_path):
    path = written(tmp_path, model, [sys.executable, "-c", commandwork.PLAIN, "{word}"])
    spec, seen = read_train(path), []
    check_tasks(path, spec)

    def keep(groups):
        seen.extend(groups)
        return groups

    async with (
        own_cluster(tmp_path / "cluster", job="commands") as cluster,
        open_training(
            spec.run,
            tasks=made_tasks(spec, cluster.client, job="commands"),
            model=spec.model,
            out=tmp_path / "out",
            engines=spec.engines,
            cluster=cluster,
            reshape=keep,
        ) as training,
    ):
        await LOOPS[spec.run.mode](training)
    attempts = [one for group in seen for one in group.trajectories]
    assert len(attempts) == 8
    assert {one.turns for one in attempts} == {2}
    for one in attempts:
        assert one.status in (TrajectoryStatus.OK, TrajectoryStatus.TRUNCATED)
        sampled = [part for part in one.segments if part.is_sampled]
        assert len(sampled) == 2
        assert not one.branches
    assert max(step.report.fresh_error for step in read(tmp_path / "out/metrics.jsonl")) < 1e-4


async def examined(path: Path, problems: int):
    spec = read_train(path)
    tokenizer = load_tokenizer(spec.model)
    async with local() as client, served(spec.model, spec.engines, log=path) as (gateway, _):
        tasks = made_tasks(spec, client, job="exam", is_exam=True)
        given = {"tokenizer": tokenizer, "model": "tiny", "client": client}
        async with agent_gateway(tasks, gateway, **given) as endpoint:
            exam = Exam(problems=problems)
            return await evaluate(tasks, gateway, exam, tokenizer=tokenizer, agents=endpoint)


async def test_the_client_of_openai_works_in_a_sandbox_as_it_is(model, tmp_path):
    command = [sys.executable, "-c", commandwork.SDK, "{word}"]
    found = await examined(written(tmp_path, model, command), 1)
    assert (found.problems, found.failed) == (1, 0)
    assert [one.exit_code for one in commandwork.ANSWERS] == [0], commandwork.ANSWERS[0].stderr


async def test_a_command_reaches_the_model_and_nothing_else(model, tmp_path):
    urls = ["http://model.internal/v1/models", "http://127.0.0.1/", "http://example.com/"]
    command = [sys.executable, "-c", commandwork.ELSEWHERE, *urls]
    await examined(written(tmp_path, model, command, score="kept"), 1)
    without_key, near, far = json.loads(commandwork.ANSWERS[0].stdout.replace("'", '"'))
    assert "401" in without_key
    assert "refused" in near
    assert "403" in far


async def test_a_command_that_does_not_exist_is_no_reward(model, tmp_path):
    with pytest.raises(Exception, match="no-such-agent did not run to its end"):
        await examined(written(tmp_path, model, ["no-such-agent"]), 1)
    assert not commandwork.ANSWERS
