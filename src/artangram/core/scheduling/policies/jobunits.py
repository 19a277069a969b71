"""What jobs hold of a pool at least and at most.

- A job never takes more than its maximum. One that holds nothing may start in any case: what can
  never fit is refused when it is submitted, so it began before its maximum was lowered.
- A job that holds less than its minimum is *entitled*: it goes before all that are not, whatever
  their shares. Calls cannot be taken back, so what a job lacks of its minimum is kept free.
"""

from collections.abc import Mapping
from types import MappingProxyType

from artangram.core.ids import JobId, Resource
from artangram.core.scheduling.cluster import JobLimits
from artangram.core.scheduling.policies.base import WaitReason
from artangram.core.scheduling.pools.slots import Slots

NO_LIMITS: Mapping[JobId, JobLimits] = MappingProxyType({})


class JobBounds:
    """Minimum and maximum of every job that has one, of one kind of unit: `cores` or `calls`."""

    __slots__ = ("_limits", "least", "most", "what")

    def __init__(self, limits: Mapping[JobId, JobLimits], what: str) -> None:
        self._limits = limits
        self.what = what
        self.least: dict[JobId, int] = {}
        self.most: dict[JobId, int] = {}
        self.reconfigure()

    def __bool__(self) -> bool:
        """Has any job one?"""
        return bool(self.least or self.most)

    def of(self, job: JobId) -> tuple[int | None, str]:
        """Its maximum, if it has one, and of what."""
        return self.most.get(job), self.what

    def reconfigure(self) -> None:
        """The limits of jobs have changed."""
        self.least.clear()
        self.most.clear()
        for job, limits in self._limits.items():
            least, most = (getattr(limits, f"{end}_{self.what}") for end in ("min", "max"))
            if least:
                self.least[job] = least
            if most is not None:
                self.most[job] = most


class JobUnits:
    """How many calls of one pool each job has under way."""

    __slots__ = ("_held", "bounds")

    def __init__(self, limits: Mapping[JobId, JobLimits]) -> None:
        self.bounds = JobBounds(limits, "calls")
        self._held: dict[JobId, int] = {}

    def take(self, job: JobId, units: int) -> None:
        """`job` has `units` more, or fewer, from now on."""
        held = self._held.get(job, 0) + units
        if held:
            self._held[job] = held
        else:
            del self._held[job]

    def allows(self, job: JobId, units: int, slots: Slots | None) -> bool:
        """May `job` have `units` more, of `slots` if there is a number of them?

        Not beyond its maximum, nor what others lack of their minimums.
        """
        if not self.is_within(job, units):
            return False
        return slots is None or not self.bounds.least or self._leaves_minimums(job, units, slots)

    def is_within(self, job: JobId, units: int) -> bool:
        """May `job` have `units` more, as far as its maximum is concerned?"""
        most, held = self.bounds.most.get(job), self._held.get(job, 0)
        return most is None or not held or held + units <= most

    def is_entitled(self, job: JobId) -> bool:
        """Has it less than its minimum?"""
        least = self.bounds.least.get(job)
        return least is not None and self._held.get(job, 0) < least

    def _leaves_minimums(self, job: JobId, units: int, slots: Slots) -> bool:
        least = self.bounds.least
        if self.is_entitled(job) or sum(least.values()) > slots.total:
            return True  # Minimums that cannot all be kept only say which job goes first.
        others = ((few, self._held.get(other, 0)) for other, few in least.items() if other != job)
        kept = sum(max(0, few - held) for few, held in others)
        return units + kept <= slots.left or slots.left == slots.total


def limited(
    resource: Resource,
    units: int,
    job: JobId,
    *,
    most: int | None,
    what: str,
    free: int,
    ahead: int,
) -> WaitReason:
    """The limits of jobs keep an action of `job`, which has `most` if any, from having `units`."""
    because = f"job {job} has its maximum of {most} {what}"
    starts_when = f"{units} of the {what} of {job} are given back; {ahead} actions go first"
    if most is None:
        because = f"the {what} that are free are kept for the minimum of another job"
        starts_when = f"more than the minimums of other jobs is free; {ahead} actions go first"
    return WaitReason(
        resource=resource,
        needed=units,
        free=free,
        ahead=ahead,
        because=because,
        starts_when=starts_when,
    )
