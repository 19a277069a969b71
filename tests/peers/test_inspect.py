"""Inspect AI's own checks of a sandbox, and its tools in an evaluation with a scripted model."""

import pytest
import pytest_asyncio

pytest.importorskip("inspect_ai", reason="`make test-peers` installs it")

from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, bash_session, python, text_editor
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from artangram.integrations.inspect import TrajectorySandboxEnvironment

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("default"),
]
NOT_OURS = {"test_exec_as_user": "a sandbox has one user; the kernel lets it make no others"}


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox_env(request, cluster):
    """What Inspect's checks are about."""
    reason = NOT_OURS.get(request.node.originalname)
    if reason is not None:
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    async with cluster.trajectory(memory_mb=1024) as trajectory:
        yield TrajectorySandboxEnvironment(trajectory)


class Words:
    """Counts tokens without the file that tiktoken would download."""

    def encode(self, text: str, **_: object) -> list[str]:
        return text.split()


def called(tool: str, **arguments: str) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm/model", tool, arguments)


async def test_the_tools_work_in_an_evaluation(tmp_path, monkeypatch):
    monkeypatch.setattr("tiktoken.get_encoding", lambda name: Words())
    script = [
        called("bash", command="echo hello > a.txt; cat a.txt"),
        called("python", code="print(6 * 7)"),
        called("text_editor", command="create", path="/work/b.txt", file_text="one\ntwo\n"),
        called("text_editor", command="view", path="/work/b.txt"),
        called("bash_session", action="type_submit", input="cd /tmp && X=5"),
        called("bash_session", action="type_submit", input="pwd; echo is$X"),
        ModelOutput.from_content("mockllm/model", "done"),
    ]
    tools = [bash(timeout=60), python(timeout=60), text_editor(), bash_session()]
    task = Task(
        dataset=[Sample(input="go", target="done")],
        solver=[use_tools(*tools), generate()],
        scorer=includes(),
        sandbox="artangram",
    )
    model = get_model("mockllm/model", custom_outputs=script)
    (log,) = await eval_async(task, model=model, log_dir=str(tmp_path))
    assert log.status == "success", log.error
    answers = [one for one in log.samples[0].messages if one.role == "tool"]
    assert [one.error for one in answers] == [None] * 6
    told = [one.text for one in answers]
    assert told[0].strip() == "hello"
    assert told[1].strip() == "42"
    assert "two" in told[3]
    assert "/tmp" in told[5]
    assert "is5" in told[5]
