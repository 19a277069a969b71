"""Aligned power-of-two runs of one node's devices.

- A run of k devices, k a power of two, starts at a multiple of k: the layout fast links follow.
- `blocks` are the free devices cut into the largest possible aligned runs; no two free buddies of
  one size ever stand side by side, so what was split is whole again when all of it came back.
- Devices that are not a power of two are the largest aligned blocks they are made of: 11 = 8+2+1.
"""

from collections.abc import Iterator


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def chunk_size(units: int) -> int:
    """The smallest chunk that holds `units` devices."""
    return 1 << (units - 1).bit_length()


class Buddy:
    """Which devices of one node are free."""

    __slots__ = ("_blocks", "devices", "free", "largest")

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.free = devices
        #: The largest chunk the node can ever give.
        self.largest = 1 << (devices.bit_length() - 1)
        #: Size of every free block by its first device.
        self._blocks: dict[int, int] = {}
        first = 0
        while first < devices:
            size = 1 << ((devices - first).bit_length() - 1)
            self._blocks[first] = size
            first += size

    def __repr__(self) -> str:
        return f"<Buddy: {self.free} of {self.devices} devices free in {self.blocks()}>"

    def blocks(self) -> list[tuple[int, int]]:
        """The free blocks as (first device, size), by position."""
        return sorted(self._blocks.items())

    def fits(self, size: int) -> bool:
        """Is some chunk of `size` free?"""
        return any(block >= size for block in self._blocks.values())

    def is_free(self, first: int, size: int) -> bool:
        """Is exactly this chunk free?"""
        return self.block_size(first, size) > 0

    def block_size(self, first: int, size: int) -> int:
        """Size of the free block this chunk would be cut from; zero when it is not free."""
        block = size
        while block <= self.largest:
            if self._blocks.get(first & -block) == block:
                return block
            block *= 2
        return 0

    def positions(self, size: int) -> Iterator[tuple[int, int]]:
        """Every free chunk of `size`: its first device and the size of the block around it."""
        for first, block in self.blocks():
            for position in range(first, first + block, size) if block >= size else ():
                yield position, block

    def layout(self, size: int) -> range:
        """The first devices of every chunk of `size`, free or not."""
        return range(0, self.devices - size + 1, size)

    def take(self, first: int, size: int) -> None:
        """This free chunk is in use: split the block around it."""
        block = self.block_size(first, size)
        assert block, f"{self} cannot give {size} at {first}"
        start = first & -block
        del self._blocks[start]
        while block > size:
            block //= 2
            if first < start + block:
                self._blocks[start + block] = block
            else:
                self._blocks[start] = block
                start += block
        self.free -= size

    def give_back(self, first: int, size: int) -> None:
        """A taken chunk is free again: merge it with its buddy as far as possible."""
        self.free += size
        assert self.free <= self.devices, f"{self} got back more than it has"
        while self._blocks.get(first ^ size) == size:
            del self._blocks[first ^ size]
            first &= ~size
            size *= 2
        self._blocks[first] = size
