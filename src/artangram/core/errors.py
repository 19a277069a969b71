"""Whose fault it was: the caller's, the called program's, or the infrastructure's.

Inside the core what the world does wrong is an `Outcome`; these are for the rooms that touch it.
"""


class BadInput(ValueError):
    """Input that cannot be accepted: which field, what is wrong, and how to fix it.

    `str()` of it is the one line a person reads.
    """

    def __init__(self, field: str, problem: str, fix: str) -> None:
        super().__init__(f"{field}: {problem}; {fix}")
        self.field = field
        self.problem = problem
        self.fix = fix

    def within(self, place: str) -> "BadInput":
        """The same complaint, seen from the record that contains the field."""
        return BadInput(f"{place}.{self.field}", self.problem, self.fix)


class CallFailed(Exception):
    """The callee ran and failed. It is the callee's own failure, so a reward may follow from it."""


class InfraFailed(Exception):
    """Infrastructure failed: a process died, a node is gone. No reward may follow from it."""
