"""Sandboxes in containers of an engine (podman or docker), with our own init inside.

The engine brings images and the container's life; commands, files, limits and cores go the same
way as in every other sandbox of this machine, so an action never waits for the engine.
"""
