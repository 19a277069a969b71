"""How many files one action passes on its way from the client to its result.

Every file of the package in which a function runs counts, on any thread. ARCHITECTURE.md walks
them; a change that adds one belongs there, and below the limits.
"""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import artangram
from artangram.orchestrator.client import Client
from artangram.orchestrator.connect import connect
from artangram.orchestrator.server import serving
from artangram.testing.fakes import fake_cluster

PACKAGE = Path(artangram.__file__).parent
PAGE = (Path(__file__).parents[3] / "ARCHITECTURE.md").read_text()

MOST_FILES = 31
MOST_FILES_OVER_HTTP = 37


@contextmanager
def passed_files() -> Iterator[set[str]]:
    files: set[str] = set()

    def note(frame: FrameType, event: str, arg: object) -> None:
        files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    ours = [Path(file) for file in files if Path(file).is_relative_to(PACKAGE)]
    files.clear()
    files.update(str(file.relative_to(PACKAGE).with_suffix("")) for file in ours)
    files.discard("sandbox/fakeprograms")  # The program that runs, not a part of its way.


async def walked(client: Client) -> set[str]:
    """The files that an action passes in a trajectory which has run some already.

    Those that every one of three passes: what else the process does meanwhile is not on its way.
    """
    walks: list[set[str]] = []
    async with client.trajectory() as t:
        for _ in range(3):
            assert (await t.run(["true"])).ok
        for _ in range(3):
            await asyncio.sleep(0.1)
            with passed_files() as files:
                result = await t.run(["true"])
            assert result.ok
            walks.append(files)
    return set.intersection(*walks)


async def test_an_action_passes_few_files() -> None:
    async with fake_cluster() as client:
        files = await walked(client)
    assert len(files) <= MOST_FILES, sorted(files)
    assert {"orchestrator/trajectory", "core/scheduling/scheduler", "managers/local"} <= files


async def test_an_action_over_http_passes_few_files() -> None:
    async with (
        fake_cluster() as behind,
        serving(behind.orchestrator, token="t") as url,
        connect(url, token="t") as client,
    ):
        files = await walked(client)
    assert len(files) <= MOST_FILES_OVER_HTTP, sorted(files)
    assert {"orchestrator/connect", "orchestrator/server"} <= files


async def test_the_walk_is_written_down() -> None:
    async with (
        fake_cluster() as behind,
        serving(behind.orchestrator, token="t") as url,
        connect(url, token="t") as client,
    ):
        files = await walked(client)
    assert f"in {MOST_FILES} files, over HTTP in {MOST_FILES_OVER_HTTP}," in PAGE
    files.discard("sandbox/fake")
    assert {file for file in files if f"`{file}`" not in PAGE} == set()
