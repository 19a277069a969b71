"""An environment with a sandbox: the model writes a command, the command has to find the number."""

import asyncio
import random

import artangram
from artangram.core.errors import InfraFailed
from artangram.envs.protocol import Observation, Problem


class ShellTask:
    name, max_turns, max_tokens = "shell", 4, 64

    def __init__(self, client):
        self.client = client

    def problems(self, seed):
        chance = random.Random(seed)
        for number in range(10**9):
            yield Problem(
                id=f"{seed}-{number}", task=self.name, data={"lines": chance.randrange(2, 90)}
            )

    def env(self, problem, *, trajectory):
        sandbox = self.client.trajectory(job="shell", task=self.name, memory_mb=64, id=trajectory)
        return ShellEnv(problem.data["lines"], sandbox)


class ShellEnv:
    def __init__(self, lines, sandbox):
        self.lines, self.sandbox, self.found = lines, sandbox, ""

    @property
    def queued_s(self):
        return self.sandbox.queued_s  # Waiting for a core is no work of this attempt.

    async def reset(self):
        await self.sandbox.__aenter__()
        await self.sandbox.write("notes.txt", "a line\n" * self.lines)
        return Observation(text="How many lines has notes.txt? Answer with a shell command.")

    async def respond(self, reply):
        result = await self.sandbox.run(["sh", "-c", reply], timeout_s=5, kind="shell/command")
        if result.exit_code is None or result.start_error:
            raise InfraFailed(result.reason)  # The score cannot be known.
        self.found = result.stdout.strip()
        return Observation(text=self.found or result.stderr, done=result.exit_code == 0)

    async def score(self):
        return float(self.found == str(self.lines))

    async def aclose(self):
        await self.sandbox.close()


async def main():
    """Play it by hand, with the replies that a model might give."""
    async with artangram.local() as client:
        task = ShellTask(client)
        env = task.env(next(task.problems(seed=0)), trajectory="by-hand")
        print((await env.reset()).text)
        for reply in ("count notes.txt", "wc -l < notes.txt"):
            print(f"> {reply}\n{(await env.respond(reply)).text.strip()}")
        print(f"score {await env.score()}")
        await env.aclose()


if __name__ == "__main__":
    asyncio.run(main())
