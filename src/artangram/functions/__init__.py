"""Stateless functions in warm workers that come and go, here or behind a URL."""
