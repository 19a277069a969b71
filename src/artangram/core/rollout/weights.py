"""Versions of the weights: which is newest, which is sampled with, which may be forgotten.

- A version is a whole number; the trainer announces each once, in growing order.
- `current` is the newest announced: staleness counts from it. `live` is the oldest version that
  an engine in service may still sample with: `live <= current` while engines load.
- The one definition of stale is `is_stale`: with current version n and bound alpha, tokens sampled
  by a version below n - alpha. Admission, every turn, every update and the sink all ask it.
- A version may be forgotten when it is older than `live` and has no holder.
"""

from enum import StrEnum

from msgspec import Struct

from artangram.core.errors import BadInput


class Order(StrEnum):
    """Which complete groups go first."""

    OLDEST = "oldest"
    """Wastes least: what is about to become stale is used."""
    FRESHEST = "freshest"
    """Trains on the newest; what is passed over may become stale."""


class Update(StrEnum):
    """What happens to running requests while an engine loads a new version."""

    PAUSE = "pause"
    """They stop, and continue under the new weights."""
    ABORT = "abort"
    """They end, and are sent again with the tokens they have."""
    DRAIN = "drain"
    """They finish under the old weights first."""


class Staleness(Struct, frozen=True, kw_only=True):
    """How old training data may be, and what is done about it."""

    max_staleness: int = 1
    """Alpha. 0 is synchronous: only the newest weights' tokens train."""
    order: Order = Order.OLDEST
    sheds_early: bool = True
    """Abort a trajectory as soon as it is stale, at a turn or at an update; else only its result
    is thrown away."""
    update: Update = Update.PAUSE

    def __post_init__(self) -> None:
        if self.max_staleness < 0:
            raise BadInput("max_staleness", f"{self.max_staleness} is negative", "say 0 or more")

    def is_stale(self, oldest: int | None, *, current: int) -> bool:
        return is_stale(oldest, current=current, max_staleness=self.max_staleness)


def is_stale(oldest: int | None, *, current: int, max_staleness: int) -> bool:
    """May tokens whose oldest was sampled by `oldest` no longer train? `None`: no tokens."""
    return oldest is not None and oldest < current - max_staleness


PRESETS = {
    "sync": Staleness(max_staleness=0, update=Update.DRAIN),
    # What is taken waits for one step of the trainer; until then it is as fresh as it can be.
    "one-off": Staleness(max_staleness=0, update=Update.DRAIN),
    "areal": Staleness(max_staleness=1, sheds_early=False),
    "rollart": Staleness(max_staleness=1),
}
"""Named after the systems that work this way."""


def preset(name: str) -> Staleness:
    if name not in PRESETS:
        raise BadInput(
            "staleness", f"no preset is called {name!r}", f"say one of {sorted(PRESETS)}"
        )
    return PRESETS[name]


class Versions:
    """The versions of one training run."""

    __slots__ = ("_holders", "current", "live")

    def __init__(self, current: int = 0) -> None:
        self.current = current
        self.live = current
        self._holders: dict[int, set[str]] = {current: set()}

    def __repr__(self) -> str:
        return f"<Versions: {self.current} is current, {self.live} is live>"

    def announce(self, version: int) -> None:
        """The trainer made `version`."""
        if version <= self.current:
            problem = f"{version} is not newer than {self.current}"
            raise BadInput("version", problem, "announce each version once, in growing order")
        self.current = version
        self._holders[version] = set()

    def go_live(self, version: int) -> None:
        """No engine in service samples with anything older than `version` any more."""
        if not self.live <= version <= self.current:
            problem = f"{version} is not from {self.live} to {self.current}"
            raise BadInput("version", problem, "announce a version first; never go back")
        self.live = version

    def hold(self, version: int, by: str) -> None:
        """`by` still needs the files of `version`."""
        if version not in self._holders:
            raise BadInput("version", f"{version} is unknown or retired", "hold it while it lives")
        self._holders[version].add(by)

    def let_go(self, version: int, by: str) -> None:
        """`by` is done with `version`. Nothing happens if it never held it."""
        self._holders.get(version, set()).discard(by)

    def retire(self) -> tuple[int, ...]:
        """Forget every version that nothing names; they are returned, oldest first."""
        gone = [v for v, holders in self._holders.items() if v < self.live and not holders]
        for version in gone:
            del self._holders[version]
        return tuple(sorted(gone))
