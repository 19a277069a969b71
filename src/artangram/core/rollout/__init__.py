"""Rollout decisions: what may start, where a turn is sampled, and what may train."""
