"""What every test relies on."""

import asyncio

from hypothesis import HealthCheck, settings

# A property that holds slowly holds: the machines that run this are shared.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


def pytest_sessionstart() -> None:
    """Tests without a loop stay without: looptime would ask for one, and nobody would close it."""
    asyncio.set_event_loop(None)
