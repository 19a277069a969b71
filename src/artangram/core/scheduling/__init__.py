"""Scheduling decisions: which action runs when, where, and on how much."""
