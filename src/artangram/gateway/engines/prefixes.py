"""The prefix cache of an engine: a tree of the tokens it has read, as vLLM and SGLang keep one.

- Prompts that begin alike share what they have in common, whichever session they belong to.
- Only whole blocks are kept and found.
- What running requests use stays. Of the rest the least recently used goes first, each prompt
  from its end; a request of the same session finds what is left of it.
- Contents decide. A named session only grows, so the place where it stopped is a shortcut: a
  conversation of a hundred turns is not compared from its first token at every turn.
- Pure: no clock, no engine.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count

from msgspec import Struct

BLOCK = 16
"""Tokens of one block, as in vLLM."""


class PrefixNode:
    """A run of whole blocks after those of its parent."""

    __slots__ = ("children", "cuts", "end", "is_gone", "parent", "tokens", "used_at", "users")

    def __init__(self, parent: "PrefixNode | None", tokens: list[int]) -> None:
        self.parent = parent
        self.tokens = tokens
        self.end: int = (parent.end if parent is not None else 0) + len(tokens)
        """Tokens from the first of the prompt to the last of these."""
        self.children: dict[tuple[int, ...], PrefixNode] = {}
        """By their first block."""
        self.users = 0
        """Running requests that use it or what follows it."""
        self.used_at = 0
        self.cuts = 0
        """Times that its end was evicted: what follows then may be of another session."""
        self.is_gone = False

    @property
    def start(self) -> int:
        return self.end - len(self.tokens)

    @property
    def key(self) -> tuple[int, ...]:
        return tuple(self.tokens[:BLOCK])


class _Stop(Struct, frozen=True, gc=False):
    """Where the last request of a session ended."""

    node: PrefixNode
    end: int
    cuts: int


MOST_STOPS = 4096
"""Shortcuts that are kept; without one, contents are compared."""


class PrefixCache:
    """See the module. `use` and `extend` return a node that `release` gives back."""

    def __init__(self) -> None:
        self._root = PrefixNode(None, [])
        self._stops: dict[str, _Stop] = {}
        self._oldest: list[tuple[int, int, PrefixNode]] = []
        """Leaves that may be evicted, least recently used first; some are in use again."""
        self._order = count()
        self._uses = 0
        self.idle_tokens = 0
        """That no running request uses."""

    def use(self, session: str, prompt: Sequence[int]) -> PrefixNode:
        """Find the longest prefix that is kept, and keep it: `end` tokens were found.

        The last token of a prompt is never found: reading it gives the first of the answer.
        """
        whole = (len(prompt) - 1) // BLOCK * BLOCK
        node = self._cut_at(*self._find(session, prompt, whole))
        self._hold(node)
        return node

    def extend(
        self, session: str, node: PrefixNode, prompt: tuple[int, ...], written: tuple[int, ...] = ()
    ) -> PrefixNode:
        """The prompt was read and some tokens written; returns the node to hold from now on."""
        whole = (len(prompt) + len(written)) // BLOCK * BLOCK
        if self._is_cleared(node):
            node = self._root
        else:
            self._release(node)
        # Only what comes after the node: prompts are long, and most of each is known.
        start = node.end
        # The node may end within what was written, if that was read again by new weights.
        tokens = prompt[start:] + written[max(0, start - len(prompt)) :]
        found, end = self._walk(node, tokens, whole, start=start)
        if end < found.end:
            found = self._cut_at(found, end)
        if end < whole:
            found = self._grown(found, list(tokens[end - start : whole - start]))
        self._hold(found)
        self._note(session, found)
        return found

    def stopped_at(self, session: str) -> int:
        """Tokens that the session had when it was last extended; 0 if that is not known."""
        stop = self._stops.get(session)
        return 0 if stop is None else stop.end

    def release(self, node: PrefixNode) -> None:
        """The request is done with it; it stays while there is room."""
        if not self._is_cleared(node):
            self._release(node)

    def shrink(self, room: int) -> None:
        """Evict until at most `room` tokens are idle."""
        while self.idle_tokens > max(0, room):
            used_at, _, node = heappop(self._oldest)
            if node.used_at == used_at and self._is_idle_leaf(node):
                self._evict(node, self.idle_tokens - max(0, room))

    def clear(self) -> None:
        """All of it was read by other weights."""
        self._root = PrefixNode(None, [])
        self._stops.clear()
        self._oldest.clear()
        self.idle_tokens = 0

    def _is_cleared(self, node: PrefixNode) -> bool:
        while node.parent is not None:
            node = node.parent
        return node is not self._root

    def _find(self, session: str, prompt: Sequence[int], whole: int) -> tuple[PrefixNode, int]:
        stop = self._stops.get(session) if session else None
        node = self._root
        if stop is not None and self._is_valid(stop, whole):
            node = stop.node
        return self._walk(node, prompt, whole)

    @staticmethod
    def _is_valid(stop: _Stop, whole: int) -> bool:
        """Is the node still a prefix of what the session had, and its prompt as long?"""
        node = stop.node
        return not node.is_gone and node.cuts == stop.cuts and node.end <= min(stop.end, whole)

    def _walk(
        self, node: PrefixNode, tokens: Sequence[int], whole: int, *, start: int = 0
    ) -> tuple[PrefixNode, int]:
        """From a node that agrees, down to the last one that agrees in at least a block.

        The first of `tokens` is at `start`.
        """
        end = node.end
        while end == node.end and end < whole and node.children:
            at = end - start
            child = node.children.get(tuple(tokens[at : at + BLOCK]))
            if child is None:
                break
            node, end = child, end + _common(child.tokens, tokens, at, whole - start)
        return node, end

    def _cut_at(self, node: PrefixNode, end: int) -> PrefixNode:
        """The node that ends there, made of the upper part of `node` if need be."""
        if end == node.end:
            return node
        assert node.parent is not None
        assert node.start < end < node.end
        length = end - node.start
        upper = PrefixNode(node.parent, node.tokens[:length])
        upper.users, upper.used_at = node.users, node.used_at
        node.parent.children[upper.key] = upper
        node.parent, node.tokens = upper, node.tokens[length:]
        upper.children[node.key] = node
        return upper

    def _grown(self, node: PrefixNode, more: list[int]) -> PrefixNode:
        """In place if no other request and no other prompt goes on from here."""
        if node.users == 0 and not node.children and node is not self._root:
            node.tokens += more
            node.end += len(more)
            self.idle_tokens += len(more)
            return node
        child = PrefixNode(node, more)
        node.children[child.key] = child
        self.idle_tokens += len(more)
        return child

    def _hold(self, node: PrefixNode) -> None:
        self._uses += 1
        one: PrefixNode | None = node
        while one is not None:
            if one.users == 0:
                self.idle_tokens -= len(one.tokens)
            one.users += 1
            one.used_at = self._uses
            one = one.parent

    def _release(self, node: PrefixNode) -> None:
        self._uses += 1
        one: PrefixNode | None = node
        while one is not None:
            one.users -= 1
            one.used_at = self._uses
            if one.users == 0:
                self.idle_tokens += len(one.tokens)
            one = one.parent
        self._offer(node)

    def _note(self, session: str, node: PrefixNode) -> None:
        if not session:
            return
        self._stops.pop(session, None)
        self._stops[session] = _Stop(node, node.end, node.cuts)
        if len(self._stops) > MOST_STOPS:
            del self._stops[next(iter(self._stops))]

    def _is_idle_leaf(self, node: PrefixNode) -> bool:
        is_leaf = not (node.users or node.children or node.is_gone)
        return is_leaf and node.parent is not None

    def _offer(self, node: PrefixNode) -> None:
        if self._is_idle_leaf(node):
            heappush(self._oldest, (node.used_at, next(self._order), node))

    def _evict(self, node: PrefixNode, wanted: int) -> None:
        """At least `wanted` tokens from its end, or all of it."""
        parent = node.parent
        assert parent is not None
        blocks = -(-wanted // BLOCK) * BLOCK
        if blocks < len(node.tokens):
            del node.tokens[-blocks:]
            node.end -= blocks
            node.cuts += 1
            self.idle_tokens -= blocks
            self._offer(node)
            return
        self.idle_tokens -= len(node.tokens)
        del parent.children[node.key]
        node.is_gone = True
        self._offer(parent)


def _common(edge: list[int], tokens: Sequence[int], start: int, whole: int) -> int:
    """How many tokens of whole blocks the edge and `tokens` from `start` on have in common."""
    most = min(len(edge), whole - start)
    if edge[:most] == list(tokens[start : start + most]):
        return most
    low, high = 1, most // BLOCK  # The first block is the key; not all are alike.
    while high - low > 1:
        middle = (low + high) // 2
        a, b = low * BLOCK, middle * BLOCK
        if edge[a:b] == list(tokens[start + a : start + b]):
            low = middle
        else:
            high = middle
    return low * BLOCK
