"""What a prefix cache keeps of a request that is read again in the middle of its answer."""

from artangram.gateway.engines.prefixes import BLOCK, PrefixCache


def test_a_node_that_ends_within_what_was_written_goes_on_from_there():
    cache, prompt = PrefixCache(), tuple(range(BLOCK))
    written = tuple(range(100, 100 + 3 * BLOCK))
    node = cache.use("s", prompt)
    node = cache.extend("s", node, prompt, written[: 2 * BLOCK])
    cache.release(cache.extend("s", node, prompt, written))
    assert cache.use("another", (*prompt, *written, 1)).end == 4 * BLOCK
