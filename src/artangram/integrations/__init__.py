"""Adapters: our sandboxes behind the interfaces that other frameworks ask for.

Each module is thin, imports its peer at most, and is imported by nothing but its user and `up`.
"""
