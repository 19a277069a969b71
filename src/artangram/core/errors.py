"""Failures of a caller. What the world does wrong is an `Outcome`, not an exception."""


class BadInput(ValueError):
    """Input that cannot be accepted: which field, what is wrong, and how to mend it.

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
