"""mini-swe-agent's environment: each command of the agent is an action in a trajectory's sandbox.

- `environment_class: artangram.integrations.minisweagent.TrajectoryEnvironment` in the agent's
  configuration; `url` or ARTANGRAM_URL names the service, else a cluster is made in this process.
- A failure of infrastructure raises `InfraFailed`; it is never an exit code that an agent could
  mistake for its own failure.
- For mini-swe-agent 2.4; `pip install 'artangram[minisweagent]'`.
"""

import os
from typing import Any

from minisweagent.exceptions import Submitted
from pydantic import BaseModel

from artangram import sync
from artangram.core.errors import InfraFailed
from artangram.core.scheduling.action import Outcome

SUBMITS = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
MOST_OUTPUT_BYTES = 8 << 20


class TrajectoryEnvironmentConfig(BaseModel):
    """What the agent's configuration may say under `environment`."""

    cwd: str = ""
    """Where commands start; empty means the trajectory's directory."""
    env: dict[str, str] = {}
    timeout: int = 30
    """Seconds that one command may run; time in the queue does not count."""
    interpreter: list[str] = ["bash", "-c"]
    image: str = ""
    """A `docker save` archive or OCI layout; empty means the programs of the node."""
    memory_mb: int = 2048
    job: str = "mini-swe-agent"
    task: str = "swe"
    url: str = ""
    token: str = ""


class TrajectoryEnvironment:
    """A trajectory for one agent, opened at once and closed by `cleanup` or with the object."""

    def __init__(self, *, config_class: type = TrajectoryEnvironmentConfig, **kwargs: Any) -> None:
        self.config = config_class(**kwargs)
        url = self.config.url or os.environ.get("ARTANGRAM_URL", "")
        token = self.config.token or os.environ.get("ARTANGRAM_TOKEN")
        self._client = sync.connect(url, token=token) if url else sync.local()
        try:
            self._trajectory = self._opened()
        except BaseException:
            self._client.close()
            raise

    def _opened(self) -> sync.SyncTrajectory:
        # Imported here: most users start from the programs of the node.
        from artangram.sandbox.protocol import TarImage

        config = self.config
        source = TarImage(path=config.image) if config.image else None
        opened = self._client.trajectory(
            job=config.job, task=config.task, memory_mb=config.memory_mb, source=source
        )
        return opened.open()

    def execute(
        self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None
    ) -> dict[str, Any]:
        """Run a command in a new shell; raises `Submitted` when it submits."""
        limit = timeout or self.config.timeout
        result = self._trajectory.run(
            [*self.config.interpreter, f"exec 2>&1\n{action.get('command', '')}"],
            timeout_s=limit,
            environ=self.config.env,
            cwd=cwd or self.config.cwd,
            output_bytes=MOST_OUTPUT_BYTES,
            keep=True,
        )
        output: dict[str, Any] = {"output": result.stdout, "exception_info": ""}
        if result.outcome is Outcome.TIMED_OUT:
            told = f"Command {action.get('command', '')!r} timed out after {limit} seconds"
            output |= _excepted("TimeoutExpired", told)
        elif result.exit_code is None or result.outcome is Outcome.INFRA_FAILED:
            raise InfraFailed(f"the command was lost: {result.reason}")
        elif result.start_error:
            output |= _excepted("FileNotFoundError", result.start_error)
        else:
            output["returncode"] = result.exit_code
        self._check_finished(output)
        return output

    def _check_finished(self, output: dict[str, Any]) -> None:
        lines = output["output"].lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == SUBMITS and output["returncode"] == 0:
            given = "".join(lines[1:])
            extra = {"exit_status": "Submitted", "submission": given}
            raise Submitted({"role": "exit", "content": given, "extra": extra})

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """For the agent's prompts: the configuration, and what `uname` says in the sandbox."""
        fields = ("system", "release", "version", "machine")
        told = self._trajectory.run(["sh", "-c", "uname -s; uname -r; uname -v; uname -m"])
        uname = dict(zip(fields, told.stdout.splitlines(), strict=False))
        config = self.config.model_dump(exclude={"token"})
        return {**config, **uname, **self.config.env, **kwargs}

    def serialize(self) -> dict[str, Any]:
        """For the agent's transcript; the token is left out."""
        told = {
            "environment": self.config.model_dump(mode="json", exclude={"token"}),
            "environment_type": f"{type(self).__module__}.{type(self).__name__}",
        }
        return {"info": {"config": told}}

    def cleanup(self) -> None:
        """Close the trajectory and the client."""
        self._client.close()

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        if client is not None:
            client.close()


def _excepted(kind: str, problem: str) -> dict[str, Any]:
    return {
        "returncode": -1,
        "exception_info": f"An error occurred while executing the command: {problem}",
        "extra": {"exception_type": kind, "exception": problem},
    }
