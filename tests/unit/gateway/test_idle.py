"""Sessions that callers forget are closed; those in use, and those of others, are not."""

import asyncio
import gc

import pytest

from artangram.gateway import Gateway
from artangram.gateway.http.idle import IdleSessions

pytestmark = pytest.mark.looptime

LIMIT_S = 60.0


def opened(gateway: Gateway, idle: IdleSessions, name: str):
    session = gateway.open(name)
    idle.add(session)
    return session


async def test_a_session_expires_after_its_last_use():
    gateway = Gateway()
    idle = IdleSessions(LIMIT_S, gateway.counters)
    first, _ = opened(gateway, idle, "first"), opened(gateway, idle, "second")
    await asyncio.sleep(0.9 * LIMIT_S)
    with idle.used(first):
        pass
    await asyncio.sleep(0.2 * LIMIT_S)
    assert list(gateway.sessions) == ["first"]
    await asyncio.sleep(LIMIT_S)
    assert not gateway.sessions
    assert gateway.counters.expired == 2


async def test_a_session_in_use_does_not_expire_and_is_in_use_until_the_last_has_gone():
    gateway = Gateway()
    idle = IdleSessions(LIMIT_S, gateway.counters)
    session = opened(gateway, idle, "s")
    with idle.used(session):
        with idle.used(session):
            await asyncio.sleep(2 * LIMIT_S)
        await asyncio.sleep(2 * LIMIT_S)
    await asyncio.sleep(0.9 * LIMIT_S)
    assert list(gateway.sessions) == ["s"]
    await asyncio.sleep(0.2 * LIMIT_S)
    assert not gateway.sessions


async def test_sessions_of_others_and_closed_ones_do_not_count():
    gateway = Gateway()
    idle = IdleSessions(LIMIT_S, gateway.counters)
    other = gateway.open("other")
    with idle.used(other):
        pass
    await opened(gateway, idle, "closed").close()
    gc.collect()
    await asyncio.sleep(3 * LIMIT_S)
    assert list(gateway.sessions) == ["other"]
    assert gateway.counters.expired == 0
