"""A run may sample with servers that somebody else has started."""

import pytest

pytest.importorskip("torch", reason="berths know how to start engines of torch")

from artangram.gateway.engines.protocol import EngineGone
from artangram.gateway.engines.scripted import ScriptedEngine
from artangram.gateway.engines.vllmdouble import application
from artangram.gateway.http import serving
from artangram.pipeline.enginepools import EnginePool, EnginesSpec
from artangram.pipeline.engines import slots_of
from integration.gateway.test_vllm_double import write_tensor


@pytest.fixture
def weights(tmp_path):
    write_tensor(tmp_path / "model.safetensors", "a", length=4)
    return tmp_path


def the_berth(url, tmp_path):
    spec = EnginesSpec(pools={"far": EnginePool(urls=(url,))})
    (slot,) = slots_of(spec, seed=0, max_context=64, log=tmp_path / "log")
    return slot


async def test_a_given_server_gets_our_weights_before_it_serves(tmp_path, weights):
    behind = ScriptedEngine(lambda request: range(3))
    async with serving(application(behind)) as url:
        slot = the_berth(url, tmp_path)
        engine = await slot.start("engine-1", 7, weights)
        assert behind.stats().version > 0  # It was told to load.
        assert not behind.stats().is_paused
        assert (slot.hardware, engine.stats().version) == ("far", 7)
        await engine.aclose()


async def test_an_address_where_nobody_answers_is_no_engine(tmp_path, weights):
    with pytest.raises(EngineGone, match="does not answer"):
        await the_berth("http://127.0.0.1:9", tmp_path).start("engine-1", 0, weights)
