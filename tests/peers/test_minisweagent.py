"""mini-swe-agent's environment: what its own tests of `LocalEnvironment` check, in a sandbox.

Left out of theirs are the cases that read or write the host's directories.
"""

import pytest

pytest.importorskip("minisweagent", reason="`make test-peers` installs it")

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.exceptions import Submitted
from minisweagent.models.test_models import DeterministicModel, make_output

CLASS = "artangram.integrations.minisweagent.TrajectoryEnvironment"
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def environment():
    made = get_environment({"environment_class": CLASS, "env": {"SET": "by config"}, "timeout": 5})
    yield made
    made.cleanup()


def test_output_and_exit_code(environment):
    found = environment.execute({"command": "echo out; echo err >&2; exit 3"})
    assert found == {"output": "out\nerr\n", "returncode": 3, "exception_info": ""}


def test_variables_and_directory(environment):
    assert environment.execute({"command": "echo $SET"})["output"] == "by config\n"
    assert environment.execute({"command": "pwd"}, cwd="/tmp")["output"] == "/tmp\n"
    environment.execute({"command": "mkdir -p sub && echo kept > sub/file"})
    assert environment.execute({"command": "cat file"}, cwd="sub")["output"] == "kept\n"


def test_each_command_has_a_shell_of_its_own(environment):
    environment.execute({"command": "export LOST=1; cd /tmp"})
    assert environment.execute({"command": "echo [$LOST]; pwd"})["output"] == "[]\n/work\n"


def test_pipes_heredocs_and_commands_without_output(environment):
    assert environment.execute({"command": "echo a b | wc -w"})["output"].strip() == "2"
    assert environment.execute({"command": "cat <<'E'\n$x 'y'\nE"})["output"] == "$x 'y'\n"
    assert environment.execute({"command": "true"}) == {
        "output": "",
        "returncode": 0,
        "exception_info": "",
    }


def test_a_missing_program_and_bytes_that_are_no_text(environment):
    assert environment.execute({"command": "no-such-program"})["returncode"] == 127
    assert "�" in environment.execute({"command": "printf '\\377'"})["output"]


def test_a_command_that_runs_too_long_says_what_it_printed(environment):
    found = environment.execute({"command": "echo early; sleep 60"}, timeout=1)
    assert found["returncode"] == -1
    assert found["output"] == "early\n"
    assert "timed out after 1 s" in found["exception_info"]
    assert found["extra"]["exception_type"] == "TimeoutExpired"


def test_a_submission_ends_the_task(environment):
    with pytest.raises(Submitted) as raised:
        environment.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo patch"})
    assert raised.value.messages[0]["extra"]["submission"] == "patch\n"
    failed = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; exit 1"
    assert environment.execute({"command": failed})["returncode"] == 1


def test_prompts_see_the_sandbox_and_transcripts_no_token(environment):
    told = environment.get_template_vars(extra="more")
    assert (told["system"], told["extra"], told["timeout"]) == ("Linux", "more", 5)
    assert "token" not in environment.serialize()["info"]["config"]["environment"]


def test_its_agent_solves_a_task(environment):
    submits = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat answer"
    script = [
        make_output("I write.", [{"command": "echo 42 > answer"}]),
        make_output("I submit.", [{"command": submits}]),
    ]
    agent = DefaultAgent(
        DeterministicModel(outputs=script),
        environment,
        system_template="You act.",
        instance_template="{{task}}",
    )
    assert agent.run("say the answer")["submission"] == "42\n"
