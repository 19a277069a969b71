"""Names of things. Plain strings at run time; distinct types for the checker."""

from typing import NewType

ActionId = NewType("ActionId", str)
JobId = NewType("JobId", str)
NodeId = NewType("NodeId", str)
TrajectoryId = NewType("TrajectoryId", str)
ServiceId = NewType("ServiceId", str)
Resource = NewType("Resource", str)
"""A kind of thing an action can need. It is the name of the pool that owns it: `cpu`, `search`."""
