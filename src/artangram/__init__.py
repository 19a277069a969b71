"""Artangram: action-level orchestration and disaggregated rollout for agentic RL."""

__version__ = "0.1.0"
