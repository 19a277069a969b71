"""How much of its cores a command had."""


class CoreMeter:
    """How long a command waited for its cores, and how much of them it had."""

    def __init__(self, num_cores: int, *, asked_at: float, now: float) -> None:
        self.lease_wait_s = now - asked_at
        self.core_s = 0.0
        self._num_cores = num_cores
        self._since = now

    def resize(self, num_cores: int, *, now: float) -> None:
        self.stop(now)
        self._num_cores = num_cores

    def stop(self, now: float) -> None:
        self.core_s += self._num_cores * (now - self._since)
        self._since = now
