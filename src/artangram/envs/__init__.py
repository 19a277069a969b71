"""Environments and their problems, and ready actions they are made of."""
