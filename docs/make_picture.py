"""Makes pictures of the dashboard in Chromium, with PYTHONPATH=tests/support.

`python docs/make_picture.py` makes docs/images/dashboard.png, of made-up work;
`python docs/make_picture.py out/run` makes docs/images/training.png, of what `make demo` wrote.
"""

import asyncio
import random
import sys
import tempfile
from pathlib import Path

from browser import a_page

from artangram.dashboard import pages
from artangram.dashboard.run import RunFollower
from artangram.dashboard.serving import run_pages
from artangram.orchestrator.client import Client
from artangram.orchestrator.server import serving
from artangram.pipeline.metrics import FILE_NAME, read
from artangram.testing.fakes import a_setup, fake_cluster

IMAGES = Path(__file__).parent / "images"
LOOK_S = 40.0
KINDS = {
    "swe-run": (("pytest", 2.5, 2), ("git", 0.15, 1), ("build", 1.6, 4)),
    "math-run": (("python", 0.5, 1), ("verify", 0.9, 1)),
    "search-run": (("rank", 0.4, 1), ("extract", 1.1, 2)),
}


async def attempt(cluster: Client, job: str, dice: random.Random) -> None:
    while True:
        async with cluster.trajectory(job=job, task=job.partition("-")[0], memory_mb=700) as t:
            for _ in range(dice.randint(2, 6)):
                kind, mean_s, cpu = dice.choice(KINDS[job])
                wanted = f"{dice.expovariate(1 / mean_s):.2f}"
                await t.run(["sleep", wanted], kind=kind, cpu=cpu)
                await asyncio.sleep(dice.expovariate(1 / 1.5))  # The model thinks.


async def picture_of_work() -> None:
    dice = random.Random(7)
    setup = a_setup(cores=16, memory_mb=32_768)
    async with (
        fake_cluster(setup) as cluster,
        serving(cluster.orchestrator, token="shown", pages=pages) as url,
    ):
        jobs = ["swe-run"] * 12 + ["math-run"] * 9 + ["search-run"] * 7
        work = [asyncio.create_task(attempt(cluster, job, dice)) for job in jobs]
        with tempfile.TemporaryDirectory() as profile:
            async with a_page(Path(profile)) as page:
                await page.resize(1360, 1080)
                await page.open(f"{url}/dashboard?token=shown")
                await asyncio.sleep(LOOK_S)
                await page.picture(IMAGES / "dashboard.png")
        for one in work:
            one.cancel()
        await asyncio.wait(work)


async def picture_of_run(place: Path) -> None:
    steps = len(read(place / FILE_NAME))
    follower = RunFollower(place, run=place.parent.name, planned=steps)
    async with (
        fake_cluster(a_setup()) as cluster,
        run_pages(cluster.orchestrator, follower, token="shown") as link,
    ):
        with tempfile.TemporaryDirectory() as profile:
            async with a_page(Path(profile)) as page:
                await page.resize(1360, 900)
                await page.open(link)
                await page.until("document.body.dataset.step")
                await asyncio.sleep(2.0)
                await page.picture(IMAGES / "training.png")


if __name__ == "__main__":
    asyncio.run(picture_of_run(Path(sys.argv[1])) if sys.argv[1:] else picture_of_work())
