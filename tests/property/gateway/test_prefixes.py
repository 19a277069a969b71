"""A prefix cache finds what it has read, no more and no less, and never forgets what is in use."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from artangram.gateway.engines.prefixes import BLOCK, PrefixCache, PrefixNode

BLOCKS = st.lists(st.integers(0, 2), min_size=1, max_size=6)
SESSIONS = st.sampled_from(["a", "b", "c", ""])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), SESSIONS, BLOCKS, st.integers(1, BLOCK)),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("shrink"), st.integers(0, 12 * BLOCK)),
        st.tuples(st.just("clear")),
    ),
    max_size=40,
)


class World:
    """Requests on a cache, and what must hold after each step."""

    def __init__(self) -> None:
        self.cache = PrefixCache()
        self.running: list[tuple[str, PrefixNode, tuple[int, ...]]] = []
        self.said: dict[str, tuple[int, ...]] = {}

    def turn(self, session: str, blocks: list[int], rest: int) -> None:
        """A request is read: blocks of one token each, and a few tokens after them."""
        new = tuple(block for block in blocks for _ in range(BLOCK)) + (9,) * rest
        prompt = self.said.get(session, ()) + new
        expected = longest(self.cache, prompt[:-1])
        node = self.cache.use(session, prompt)
        assert node.end == expected
        assert contents(node) == list(prompt[: node.end])
        node = self.cache.extend(session, node, prompt)
        assert node.end == len(prompt) // BLOCK * BLOCK
        self.running.append((session, node, prompt))
        if session:
            self.said[session] = prompt[: node.end]

    def end(self, number: int) -> None:
        if self.running:
            session, node, prompt = self.running.pop(number % len(self.running))
            more = prompt if session else prompt + (7,) * BLOCK
            self.cache.release(self.cache.extend(session, node, more))

    def shrink(self, room: int) -> None:
        self.cache.shrink(room)
        assert self.cache.idle_tokens <= room

    def clear(self) -> None:
        self.cache.clear()
        assert self.cache.idle_tokens == 0
        assert longest(self.cache, (0,) * 99) == 0

    def check(self) -> None:
        nodes = list(below(self.cache._root))
        assert self.cache.idle_tokens == sum(len(one.tokens) for one in nodes if not one.users)
        for node in nodes:
            assert len(node.tokens) % BLOCK == 0
            assert node.tokens
            assert node.parent is not None
            assert node.parent.children[node.key] is node
        living = [held for held in self.running if not self.cache._is_cleared(held[1])]
        for _, node, prompt in living:
            assert contents(node) == list(prompt[: node.end])
        assert self.cache._root.users == len(living)


def below(node: PrefixNode) -> Iterator[PrefixNode]:
    for child in node.children.values():
        yield child
        yield from below(child)


def contents(node: PrefixNode | None) -> list[int]:
    return [] if node is None else contents(node.parent) + node.tokens


def longest(cache: PrefixCache, prompt: tuple[int, ...]) -> int:
    """By comparing the prompt with all that is kept."""
    found = 0
    for node in below(cache._root):
        kept = contents(node)
        common = next(
            (n for n, (a, b) in enumerate(zip(kept, prompt, strict=False)) if a != b),
            min(len(kept), len(prompt)),
        )
        found = max(found, common // BLOCK * BLOCK)
    return found


def alike(session: str, *blocks: int) -> list[tuple]:
    """A turn from its beginning to its end."""
    return [("turn", session, list(blocks), 1), ("end", 0)]


GROWS_BEYOND = [*alike("a", 0), *alike("b", 0), *alike("a", 1), *alike("b", 2)]
"""The node where the second session stopped is continued by the first one."""
CUT_AND_GROWN = [*alike("b", 0, 1, 1), ("shrink", BLOCK), *alike("a", 0, 2, 2), *alike("b", 1)]
"""The node where a session stopped loses its end, and another session continues it."""


@example(GROWS_BEYOND)
@example(CUT_AND_GROWN)
@given(STEPS)
def test_a_cache_finds_exactly_what_it_has_kept(steps: list[tuple]):
    world = World()
    for name, *fields in steps:
        getattr(world, name)(*fields)
        world.check()


def trusts_sessions(real: Callable) -> Callable:
    """The shortcut of a session counts even if another session has grown its node."""
    return lambda stop, whole: not stop.node.is_gone and stop.node.end <= whole


def always_in_place(real: Callable) -> Callable:
    def grown(cache: PrefixCache, node: PrefixNode, more: list[int]) -> PrefixNode:
        users, node.users = node.users, 0
        found = real(cache, node, more)
        node.users = users
        return found

    return grown


def cuts_uncounted(real: Callable) -> Callable:
    def evict(cache: PrefixCache, node: PrefixNode, wanted: int) -> None:
        real(cache, node, wanted)
        node.cuts = 0

    return evict


def without_the_rest(real: Callable) -> Callable:
    """A node that is divided keeps its lower part only."""

    def cut_at(cache: PrefixCache, node: PrefixNode, end: int) -> PrefixNode:
        upper = real(cache, node, end)
        upper.users = 0 if upper is not node else upper.users
        return upper

    return cut_at


@pytest.mark.parametrize(
    ("method", "bug"),
    [
        ("_is_valid", trusts_sessions),
        ("_grown", always_in_place),
        ("_evict", cuts_uncounted),
        ("_cut_at", without_the_rest),
    ],
)
def test_the_property_catches_a_planted_bug(
    method: str, bug: Callable, monkeypatch: pytest.MonkeyPatch
):
    wrong = bug(getattr(PrefixCache, method))
    monkeypatch.setattr(
        PrefixCache, method, staticmethod(wrong) if method == "_is_valid" else wrong
    )
    with pytest.raises((AssertionError, IndexError, AttributeError, KeyError, ExceptionGroup)):
        test_a_cache_finds_exactly_what_it_has_kept()
