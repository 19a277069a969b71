"""What every test relies on."""

import asyncio


def pytest_sessionstart() -> None:
    """Tests without a loop stay without: looptime would ask for one, and nobody would close it."""
    asyncio.set_event_loop(None)
