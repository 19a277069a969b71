"""A software-engineering task from beginning to end, with a repository that this file makes.

1. An image: a `docker save` archive if you name one, else the programs of this machine.
2. The repository and what it depends on, installed once and kept as a snapshot.
3. Attempts start from that snapshot as siblings, and run the visible tests on the cores that are
   free.
4. Hidden tests run in a sandbox of their own: an attempt never sees them, and hands over a file.

    python examples/swe_task.py [IMAGE.tar]
"""

import asyncio
import sys

import artangram
from artangram import Outcome, TarImage, between
from artangram.envs.elastictest import command, one_file

CODE = """
from averages import half

def median(numbers):
    return sorted(numbers)[half(len(numbers))]
"""
VISIBLE = "from stats import median\n\ndef test_odd():\n    assert median([3, 1, 2]) == 2\n"
HIDDEN = """
import pytest
from stats import median

@pytest.mark.parametrize("n", range(2, 40, 2))
def test_even(n):
    assert median(range(n)) == (n - 1) / 2
"""
RIGHT = """
def median(numbers):
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else sum(ordered[middle - 1 : middle + 1]) / 2
"""
ATTEMPTS = {"right": RIGHT, "changes nothing": CODE, "does not parse": "def median(:\n"}
"""What a model would write."""
JUDGED = {Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT}
SETUP = (
    "mkdir -p vendor/averages && echo 'def half(n): return n // 2' > vendor/averages/__init__.py"
)
"""Here a real task runs `pip install`; what it writes is part of the snapshot."""


async def prepared(client, image):
    """The repository, ready for attempts, as a snapshot."""
    async with client.trajectory(task="swe", memory_mb=256, source=image) as t:
        await t.write("stats.py", CODE)
        await t.write("tests/test_visible.py", VISIBLE)
        await t.write(".elastic.pyz", one_file())
        done = await t.run(["sh", "-c", SETUP], kind="swe/setup")
        if not done.ok:
            raise RuntimeError(f"setting up failed: {done.reason} {done.stderr}")
        return await t.snapshot()


async def tested(t):
    """Run the tests that are there on 1 to 8 cores, as many as are free."""
    suite = command(["-q", "tests"], program=".elastic.pyz", python=sys.executable)
    suite = ["env", "PYTHONPATH=.:vendor", *suite]
    return await t.run(suite, cpu=between(1, 8), kind="swe/test", timeout_s=120)


async def attempt(client, base, text):
    """The file that one attempt hands over; it may run the visible tests."""
    async with client.trajectory(task="swe", memory_mb=256, source=base) as t:
        await t.write("stats.py", text)
        await tested(t)
        return await t.read("stats.py")


async def score(client, base, handed_over):
    """1 or 0 by the hidden tests; `None` if infrastructure failed, which is no score at all."""
    async with client.trajectory(task="swe", memory_mb=256, source=base) as t:
        await t.write("stats.py", handed_over)
        await t.write("tests/test_hidden.py", HIDDEN)
        result = await tested(t)
        if result.outcome not in JUDGED or result.start_error:
            return None
        return float(result.ok)


async def main():
    image = TarImage(path=sys.argv[1]) if len(sys.argv) > 1 else None
    async with artangram.local() as client:
        base = await prepared(client, image)
        files = await asyncio.gather(*(attempt(client, base, one) for one in ATTEMPTS.values()))
        scores = await asyncio.gather(*(score(client, base, one) for one in files))
    for name, found in zip(ATTEMPTS, scores, strict=True):
        print(f"{name}: {found}")


asyncio.run(main())
