"""Versions of the weights at rest and in flight."""
