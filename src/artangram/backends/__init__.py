"""Engines that place and supervise agents on machines. No action travels through them.

- `agentlock` keeps one agent per name on a machine, and tells a supervisor which process it is.
- `ray` is the only place that imports Ray.
"""
