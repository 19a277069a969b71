"""Why is it waiting? An answer per resource, and what would let the action start."""

from msgspec import Struct

from artangram.core.ids import ActionId
from artangram.core.policies.base import Hindrance, State, Ticket


class Explanation(Struct, frozen=True, kw_only=True):
    """The state of an action in words."""

    action_id: ActionId
    state: str
    summary: str
    hindrances: tuple[Hindrance, ...] = ()


def explanation(ticket: Ticket, hindrances: list[Hindrance]) -> Explanation:
    """What to tell somebody who asks about `ticket`."""
    if ticket.state is State.RUNNING and ticket.units == 0:
        summary = "stands aside for shorter work and runs on when there is room again"
    elif ticket.state is State.RUNNING:
        summary = f"runs on {ticket.units} units since {ticket.started_at:.3f} s"
    elif hindrances:
        summary = "; ".join(f"{h.resource}: {h.because}" for h in hindrances)
    else:
        summary = "it can start and is about to"
    return Explanation(
        action_id=ticket.action.id,
        state=ticket.state.value,
        summary=summary,
        hindrances=tuple(hindrances),
    )
