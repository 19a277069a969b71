"""The two lowest levels: plain processes in a directory, with or without a system call filter.

For trusted code on machines without namespaces. Nothing here hides the machine.
"""
