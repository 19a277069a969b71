"""Teachers of a run: from a file, loaded and served, with one process and with two."""

import asyncio
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from aiohttp import web  # noqa: E402

from artangram.core.errors import BadInput  # noqa: E402
from artangram.models.causal import score  # noqa: E402
from artangram.models.directory import load_causal  # noqa: E402
from artangram.models.packed import pack  # noqa: E402
from artangram.pipeline.metrics import read  # noqa: E402
from artangram.pipeline.teachers import LoadedTeacher, ServedTeacher  # noqa: E402
from artangram.train.samples import Sample  # noqa: E402

pytestmark = pytest.mark.timeout(900)
PROGRAM = (sys.executable, "-c", "from artangram.cli import main; main()")


def artangram(home, *argv):
    return subprocess.run(
        [*PROGRAM, *argv], cwd=home, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.fixture(scope="module")
def home(warm_examples):
    """The examples with a teacher that was shown the answers."""
    made = artangram(
        warm_examples,
        *("warmup", "models/guessing", "shown.jsonl", "--out", "models/teacher"),
        *("--steps", "200", "--lr", "1e-3"),
    )
    assert made.returncode == 0, made.stderr
    return warm_examples


def test_a_student_learns_from_a_teacher_of_its_file(home, tmp_path):
    done = artangram(home, "train", "distillation.yaml", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    reports = [record.report for record in read(tmp_path / "distillation" / "metrics.jsonl")]
    assert reports[0].reward < 0.45
    assert fmean(report.reward for report in reports[-5:]) > 0.7
    assert reports[-1].teacher_gap < 0.3 * reports[0].teacher_gap


def test_two_processes_learn_from_the_same_teacher(home, tmp_path):
    text = (home / "distillation.yaml").read_text().replace("steps: 100", "steps: 3")
    (home / "two.yaml").write_text(text.replace("entropy: 0", "entropy: 0, processes: 2"))
    done = artangram(home, "train", "two.yaml", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    reports = [record.report for record in read(tmp_path / "distillation" / "metrics.jsonl")]
    assert all(report.version for report in reports)
    assert reports[-1].teacher_gap > 0


def a_sample(name, tokens, sampled, temperature=1.0):
    return Sample(
        trajectory=name,
        task="guessing",
        token_ids=tuple(tokens),
        sampled=tuple(sampled),
        behaviour=(-1.0,) * len(sampled),
        versions=(0,) * len(sampled),
        temperatures=(temperature,) * len(sampled),
        advantage=0.0,
        length=len(sampled),
    )


SAMPLES = [a_sample("long", (6, 9, 2, 8, 9, 10, 2), (4, 5, 6)), a_sample("short", (6, 9, 2), (1,))]


class ScoringServer:
    """Answers as vLLM's completions do when they are asked for `prompt_logprobs`."""

    def __init__(self, directory: Path) -> None:
        self._model = load_causal(directory)
        self.failures = 0

    def app(self):
        app = web.Application()
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/completions", self.completions)
        return app

    async def models(self, request):
        return web.json_response({"data": [{"id": "the-teacher"}]})

    async def completions(self, request):
        if self.failures:
            self.failures -= 1
            raise web.HTTPServiceUnavailable
        body = await request.json()
        assert body["model"] == "the-teacher"
        packed = pack([body["prompt"]])
        found = score(self._model, packed, at=packed.later_tokens()).logprobs.detach().tolist()
        rows = [
            {str(token): {"logprob": value, "rank": 1}, "0": {"logprob": -9.0, "rank": 2}}
            for token, value in zip(body["prompt"][1:], found, strict=True)
        ]
        return web.json_response({"choices": [{"text": "x", "prompt_logprobs": [None, *rows]}]})


async def served(directory, use, *, failures=0):
    server = ScoringServer(directory)
    server.failures = failures
    runner = web.AppRunner(server.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        return await use(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
    finally:
        await runner.cleanup()


async def test_a_server_and_a_directory_say_the_same(home):
    directory = home / "models" / "teacher"
    loaded = await LoadedTeacher(directory, device="cpu").score(SAMPLES)
    asked = await served(directory, lambda url: ServedTeacher(url).score(SAMPLES), failures=1)
    assert [len(row) for row in loaded] == [3, 1]
    for ours, theirs in zip(loaded, asked, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)


async def test_what_a_server_cannot_score_is_refused(home):
    hot = [a_sample("hot", (6, 9, 2), (1,), temperature=0.5)]
    with pytest.raises(BadInput, match="temperature 1 only"):
        await ServedTeacher("http://127.0.0.1:9").score(hot)
    (cool,), (warm,) = await asyncio.gather(
        *(LoadedTeacher(home / "models/teacher", device="cpu").score(s) for s in (hot, SAMPLES[1:]))
    )
    assert cool != pytest.approx(warm, abs=1e-5)


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("models/teacher", "models/nothing", "tasks.guessing.teachers: models/nothing is not"),
        (", teachers: [models/teacher]", "", "teachers: has none to learn from"),
        ("loss: distillation", "loss: grpo", "teachers: are for distillation"),
    ],
)
def test_teachers_that_cannot_teach_are_refused_before_the_run(home, before, after, problem):
    text = (home / "distillation.yaml").read_text()
    assert before in text
    (home / "bad.yaml").write_text(text.replace(before, after))
    done = artangram(home, "train", "bad.yaml", "--print-plan")
    assert (done.returncode, problem in done.stderr) == (2, True), done.stderr
