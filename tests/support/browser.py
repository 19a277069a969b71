"""A real Chromium without a head, spoken to over its debugging interface."""

import asyncio
import base64
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--window-size=1400,1000",
)
PATIENCE_S = 90.0
CODES = {"Escape": 27}


class Page:
    """One tab. `complaints` are errors of its console, scripts and requests."""

    def __init__(self, wire: aiohttp.ClientWebSocketResponse) -> None:
        self._wire = wire
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self.complaints: list[str] = []
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for message in self._wire:
            told = json.loads(message.data)
            if "id" in told:
                future = self._answers.pop(told["id"])
                if "error" in told:
                    future.set_exception(RuntimeError(str(told["error"])))
                else:
                    future.set_result(told["result"])
            elif told["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["params"]["exceptionDetails"]))
            elif told["method"] == "Log.entryAdded":
                entry = told["params"]["entry"]
                if entry["level"] in ("error", "warning"):
                    self.complaints.append(f"{entry['text']} {entry.get('url', '')}")
            elif told["method"] == "Runtime.consoleAPICalled" and (
                told["params"]["type"] in ("error", "warning")
            ):
                self.complaints.append(json.dumps(told["params"]["args"]))

    async def do(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        future = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._wire.send_json({"id": self._number, "method": method, "params": parameters})
        return await asyncio.wait_for(future, PATIENCE_S)

    async def open(self, url: str) -> None:
        await self.do("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def value(self, script: str) -> Any:
        """What `script` evaluates to; a promise is awaited."""
        found = await self.do(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait until `script` is true."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self._is_true(script):  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.05)

    async def _is_true(self, script: str) -> bool:
        try:
            return bool(await self.value(script))
        except (AssertionError, RuntimeError):
            return False  # It is between two pages.

    async def key(self, key: str) -> None:
        text: dict[str, Any] = {"text": key}
        if len(key) > 1:
            text = {"windowsVirtualKeyCode": CODES[key]}
        await self.do("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        await self.do("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def resize(self, width: int, height: int) -> None:
        await self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def picture(self, path: Path) -> None:
        found = await self.do("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(found["data"]))

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.wait({self._listening})


def _port(profile: Path) -> str:
    """Where the browser listens, as soon as it has written that."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with suppress(OSError, ValueError):
            port, _ = (profile / "DevToolsActivePort").read_text().split()
            return port
        time.sleep(0.05)
    raise TimeoutError("the browser did not start")


@asynccontextmanager
async def a_page(profile: Path) -> AsyncIterator[Page]:
    """A tab of a browser that ends with the block."""
    assert PROGRAM is not None
    argv = [PROGRAM, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    quiet = asyncio.subprocess.DEVNULL
    browser = await asyncio.create_subprocess_exec(*argv, stdout=quiet, stderr=quiet)
    try:
        address = f"http://127.0.0.1:{await asyncio.to_thread(_port, profile)}"
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{address}/json/list") as found:
                tab = next(one for one in await found.json() if one["type"] == "page")
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as wire:
                page = Page(wire)
                for domain in ("Page", "Runtime", "Log"):
                    await page.do(f"{domain}.enable")
                yield page
                await page.close()
    finally:
        if browser.returncode is None:
            browser.terminate()
        await browser.wait()
