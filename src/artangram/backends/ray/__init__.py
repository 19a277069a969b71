"""Agents on the nodes of a Ray cluster. The only place that imports Ray.

- Ray places and supervises processes. Actions, bodies and weights travel over our own link.
- `watch` is a process beside the head: it follows Ray's nodes and keeps one warden on each. Ray
  may end it (a driver dies with its cluster); the head and the agents go on.
- A warden holds a claim on CPUs, so that Ray's own tasks and ours do not book a core twice, and
  keeps one agent running in a session of its own, which outlives warden and raylet.
- `lookup` resolves `ray://...` to the head's address and token.

Importing this package does not import Ray: `watch`, `resolve` and the wardens do.
"""
