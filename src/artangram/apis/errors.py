"""What an API does that no other infrastructure does: send a caller away."""

from artangram.core.errors import InfraFailed


class TurnedAway(InfraFailed):
    """The API did not take the call: nothing was done, so any call may be made again later.

    It is no failure of the call either: being sent away ten times leaves it as good as new.
    """
